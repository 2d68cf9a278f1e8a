"""What an exception means to a person: a message, a hint, an exit code."""

from __future__ import annotations

import re
from difflib import get_close_matches

from gencli.errors import (
    ConfigError,
    GencliError,
    GenerationError,
    PluginError,
    UsageError,
    is_out_of_memory,
    is_panic,
)
from processors.errors import GrammarError, ProcessorsError, RowError, StageFailure, UnknownStage

__all__ = ["explain"]

_DEBUG = "--debug shows the traceback."


def explain(error: BaseException) -> GencliError:
    """The error as one of gencli's own."""
    if isinstance(error, StageFailure):
        return PluginError(str(error), hint="gencli stages check PLUGIN shows the smallest case.")
    if isinstance(error, RowError):
        return GenerationError(str(error))
    if isinstance(error, GrammarError):
        return ConfigError(str(error))
    if isinstance(error, UnknownStage):
        return UsageError(str(error), hint="--plugin path.py adds a stage of your own.")
    if isinstance(error, ProcessorsError):
        return UsageError(str(error))
    if hasattr(error, "format_message"):  # typer's own, whose classes it does not export
        return _usage(error)
    if is_out_of_memory(error):
        return GenerationError("The memory is full.", hint="Lower --max-batch, or take a smaller --dtype.")
    if is_panic(error):
        return GencliError(f"The Rust code of a library has given up: {error}.", hint=_DEBUG)
    return GencliError(
        f"Unexpected {type(error).__name__}: {error}",
        hint=f"This is a fault of gencli; {_DEBUG}",
    )


def _usage(error: BaseException) -> UsageError:
    name = str(getattr(error, "option_name", ""))
    if type(error).__name__ != "NoSuchOption":
        message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
        return UsageError(message, hint=f"See {_command(error)} --help.")
    if not re.fullmatch(r"--?\w[\w-]*", name):
        return UsageError(
            f"There is no option {name!r}.", hint="Put -- before a prompt that begins with a dash."
        )
    close = get_close_matches(name, _flags(error), n=1)
    hint = f"Did you mean {close[0]}?" if close else f"See {_command(error)} --help."
    return UsageError(f"There is no option {name}.", hint=hint)


def _command(error: BaseException) -> str:
    return getattr(getattr(error, "ctx", None), "command_path", None) or "gencli"


def _flags(error: BaseException) -> list[str]:
    """The long flags of the command that was called."""
    parameters = getattr(getattr(getattr(error, "ctx", None), "command", None), "params", ())
    names = [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]
    return [name for name in names if name.startswith("--")]
