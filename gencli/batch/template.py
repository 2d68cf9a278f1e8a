"""Prompts from a template: Jinja2 in its sandbox, where a name without a value is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gencli.errors import GencliError, UsageError
from gencli.files import read_file
from gencli.templates.messages import MAX_PROMPT, Order
from gencli.templates.renderer import renderer
from processors.errors import nearest

__all__ = ["PromptTemplate", "TemplateFault", "read_template"]

_MAX_BYTES = 1 << 20  # of a template's file


class TemplateFault(GencliError):
    """The template has no result for this row; `is_of_columns` says that it names what the row lacks."""

    def __init__(self, message: str, *, is_of_columns: bool = False) -> None:
        super().__init__(message)
        self.is_of_columns = is_of_columns


class PromptTemplate:
    """A template as it is applied to rows. `text` is its source."""

    def __init__(self, text: str, name: str = "--template") -> None:
        self.text = text
        found = renderer.render(Order(text, None, is_chat=False, limit=MAX_PROMPT))
        if found.error:
            where = f"{name}, line {found.line}" if found.line else name
            raise UsageError(f"{where}: this is no Jinja template: {found.error}.")

    def render(self, columns: Mapping[str, Any]) -> str:
        """The prompt for a row. A column is a variable; `row` is all of them. Raises TemplateFault."""
        variables = {"row": columns, **columns}
        found = renderer.render(Order(self.text, variables, is_chat=False, limit=MAX_PROMPT))
        if found.error:
            message = f"The template failed: {_reason(found.error, columns)}."
            raise TemplateFault(message, is_of_columns=found.is_undefined)
        return found.text


def read_template(given: str) -> PromptTemplate:
    """The template that --template gives: its text, or the file that holds it. Raises UsageError."""
    if "{" in given:
        return PromptTemplate(given)
    try:
        text = read_file(Path(given), _MAX_BYTES, pipes=True).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"--template {given!r} has no {{{{ }}}} in it, and as a file it cannot be read: {reason}.",
            hint="Write it as in --template 'Summarise: {{ text }}'.",
        ) from None
    return PromptTemplate(text.removesuffix("\n").removesuffix("\r"), given)


def _reason(error: str, columns: Mapping[str, Any]) -> str:
    text = error.rstrip(".")
    name = text.split("'")[1] if text.endswith("is undefined") and "'" in text else ""
    if not name or name in columns:
        return text
    return f"the row has no column {name!r}. {nearest(name, columns)}".rstrip(". ")
