"""Errors of the wire format: one form on every route, with a status and a type known to clients.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

Source: the reference of OpenAI's API, and its client's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.errors import GencliError

__all__ = ["ApiError", "bad_field", "unknown_field"]

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
_LONG = 1000  # characters of a message
_HEADERS: dict[int, dict[str, str]] = {
    401: {"www-authenticate": "Bearer"},
    429: {"retry-after": "1"},
    500: {"x-should-retry": "false"},  # OpenAI's client would otherwise send the request twice more
    503: {"retry-after": "5"},
}


class ApiError(GencliError):
    """An error with a status; `param` is the invalid field, `code` is for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(f"{_cut(message)} {hint}".strip(), hint=hint)
        self.status, self.param, self.code = status, param and _cut(param), code
        self.headers = {**_HEADERS.get(status, {}), **(headers or {})}

    @property
    def type(self) -> str:
        """The type of the error, determined by its status."""
        return _TYPES.get(self.status, "invalid_request_error")

    @property
    def body(self) -> dict[str, Any]:
        """The body of the reply."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def _cut(text: str) -> str:
    """Shorten text quoted from a client, so that a reply does not grow with its request."""
    return text if len(text) <= _LONG else f"{text[: _LONG // 2]} ... {text[-_LONG // 2 :]}"


def bad_field(field: str, message: str, *, code: str = "invalid_value") -> ApiError:
    """Return the error for a field with an invalid value; the message begins with the field."""
    return ApiError(400, message, param=field, code=code)


def unknown_field(field: str, hint: str = "") -> ApiError:
    """Return the error for a field that is unknown or unsupported by this server."""
    return ApiError(400, f"There is no field {field!r}.", param=field, code="unknown_field", hint=hint)
