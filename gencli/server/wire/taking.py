"""Takes fields out of a body, and checks the type of each."""

from __future__ import annotations

from typing import Any

from gencli.server.wire.errors import ApiError, bad_field

__all__ = ["Taking", "is_id"]


class Taking:
    """Takes fields out of `rest`, the non-null fields of a body. Raises ApiError for a wrong type."""

    def __init__(self, rest: dict[str, Any]) -> None:
        self.rest = rest

    def needed(self, name: str) -> Any:
        """Return a required field."""
        if name not in self.rest:
            raise ApiError(400, f"The body needs {name}.", param=name, code="missing_field")
        return self.rest.pop(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean field."""
        value = self.rest.pop(name, default)
        if not isinstance(value, bool):
            raise bad_field(name, f"{name} has to be true or false.")
        return value

    def text(self, name: str) -> str:
        """Return a short text field."""
        value = self.rest.pop(name, "")
        if not isinstance(value, str) or len(value) > 512:
            raise bad_field(name, f"{name} has to be a short text.")
        return value

    def count(self, name: str) -> int | None:
        """Return an integer field >= 0; None if it is missing or false."""
        value = self.rest.pop(name, None)
        if value is None or value is False:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise bad_field(name, f"{name} has to be a whole number from 0.")
        return value

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return an integer field within bounds; None if it is missing."""
        value: int | None = self.rest.pop(name, None)
        if value is not None and (not is_id(value) or not least <= value <= most):
            raise bad_field(name, f"{name} has to be a whole number, {least} to {most}.")
        return value


def is_id(value: Any) -> bool:
    """Whether the value is an integer, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)
