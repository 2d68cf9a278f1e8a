"""What is wrong with a schema, before a run, and with a document, after one."""

from __future__ import annotations

from gencli.errors import ConfigError, GenerationError

__all__ = ["DocumentError", "OutOfTime", "SchemaError"]


class SchemaError(ConfigError):
    """A schema that cannot be used; `pointer` is the JSON pointer of the place."""

    def __init__(self, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer


class OutOfTime(ConfigError):
    """Looking at a schema took longer than all that comes before a run may take."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The schema was not checked within the time limit of {seconds:g} s.",
            hint="Make it smaller, or give it more time with --grammar-timeout.",
        )


class DocumentError(GenerationError):
    """A text that is no JSON document, and where; line and column count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.text = message
        self.line = line
        self.column = column
