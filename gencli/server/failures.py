"""Converts any exception to an error of the wire format."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gencli.config.options.run import OPTIONS
from gencli.errors import ConfigError, DeviceError, GencliError, ModelError
from gencli.server.engine_thread import EngineDied
from gencli.server.wire.errors import ApiError
from gencli.structured.output_spec import KINDS
from processors.errors import ProcessorsError
from processors.machine_faults import is_out_of_memory

__all__ = ["api_error"]

# Beginnings of messages that name no option.
_BEGINNINGS = (
    ("The stop pattern", "stop_regex"),
    ("There is no stage", "chain"),
    ("There is no stage", "stages"),
    ("The drafter", "draft"),
    ("The amateur", "contrast"),
    ("There is no tool", "tool_choice"),
)


def api_error(error: BaseException, fields: Mapping[str, str] | None = None) -> ApiError:
    """Return the ApiError of an exception; `fields`: the body's field that set each option."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineDied | DeviceError):
        return ApiError(503, error.message, code="shutdown" if "shut down" in error.message else "dead")
    if isinstance(error, GencliError | ProcessorsError):
        hint = error.hint if isinstance(error, GencliError) else ""
        message = error.message if isinstance(error, GencliError) else str(error)
        code = _code(error)
        return ApiError(400, message, param=_param(message, code, fields or {}), code=code, hint=hint)
    if is_out_of_memory(error):
        return ApiError(503, "The memory of the server is full.", code="out_of_memory")
    return ApiError(
        500, f"The server failed on this request ({type(error).__name__}).", code="internal_error"
    )


def _code(error: GencliError | ProcessorsError) -> str:
    if isinstance(error, ConfigError):
        return "invalid_structure"
    return "template_error" if isinstance(error, ModelError) else "invalid_value"


def _param(message: str, code: str, fields: Mapping[str, str]) -> str | None:
    """Return the body's field that a message is about; None if unknown."""
    first = message.split(" ", 1)[0].strip("`:").partition("[")[0]
    keys = [first, *(entry.key for entry in OPTIONS if entry.stage == first)]
    keys += [key for beginning, key in _BEGINNINGS if message.startswith(beginning)]
    keys += re.findall(r"`(\w+)`", message)
    keys += KINDS if code == "invalid_structure" else ()
    return next((fields[key] for key in keys if key in fields), None)
