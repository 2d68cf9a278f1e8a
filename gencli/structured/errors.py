"""Errors of schemas: invalid, not checked in time, or not enforceable by a mask."""

from __future__ import annotations

from gencli.errors import ConfigError

__all__ = ["GiveUp", "OutOfTime", "SchemaError"]


class SchemaError(ConfigError):
    """A schema that cannot be used; `pointer` is the JSON pointer of the fault."""

    def __init__(self, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer


class OutOfTime(ConfigError):
    """A schema was not checked, planned or compiled within the time limit."""


class GiveUp(Exception):
    """A schema or pattern cannot be rewritten so that a mask enforces it."""
