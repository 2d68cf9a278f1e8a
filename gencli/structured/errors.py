"""What is wrong with a schema, before a run, and with a document, after one."""

from __future__ import annotations

from gencli.errors import ConfigError, GenerationError

__all__ = ["DocumentError", "SchemaError"]


class SchemaError(ConfigError):
    """A schema that cannot be used; `pointer` is the JSON pointer of the place."""

    def __init__(self, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer


class DocumentError(GenerationError):
    """A text that is no JSON document, and where; line and column count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.text = message
        self.line = line
        self.column = column
