"""Prompts from a template: Jinja2 in its sandbox, where a name without a value is an error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gencli.errors import GencliError, UsageError
from processors.errors import nearest

__all__ = ["MAX_CHARS", "PromptTemplate", "TemplateFault", "read_template"]

MAX_CHARS = 2**20  # of a rendered prompt
_MAX_POWER = 10**4  # bits of the result


class TemplateFault(GencliError):
    """The template has no result for this row; `is_of_columns` says that it names what the row lacks."""

    def __init__(self, message: str, *, is_of_columns: bool = False) -> None:
        super().__init__(message)
        self.is_of_columns = is_of_columns


class _Sandbox(ImmutableSandboxedEnvironment):
    """What a row holds cannot make a value that fills the memory."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and all(isinstance(value, int) for value in (left, right)):
            if left.bit_length() * abs(right) > _MAX_POWER:
                raise SecurityError("the power is too large")
        elif operator == "*":
            for part, times in ((left, right), (right, left)):
                if isinstance(part, str | list | tuple) and isinstance(times, int):
                    _check_size(len(part) * times)
        return super().call_binop(context, operator, left, right)


def _check_size(size: int) -> None:
    if size > MAX_CHARS:
        raise SecurityError(f"the result is longer than {MAX_CHARS} characters")


class PromptTemplate:
    """A template as it is applied to rows. `text` is its source."""

    def __init__(self, text: str, name: str = "--template") -> None:
        self.text = text
        environment = _Sandbox(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
        try:
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            where = f"{name}, line {error.lineno}"
            raise UsageError(f"{where}: this is no Jinja template: {error.message}.") from None

    def render(self, columns: Mapping[str, Any]) -> str:
        """The prompt for a row. A column is a variable; `row` is all of them. Raises TemplateFault."""
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate({"row": columns, **columns}):
                size += len(part)
                _check_size(size)
                parts.append(part)
        except TemplateError as error:
            is_undefined = isinstance(error, UndefinedError)
            raise TemplateFault(
                f"The template failed: {_reason(error, columns)}.", is_of_columns=is_undefined
            ) from None
        except Exception as error:  # what a filter makes of a value of the wrong kind
            raise TemplateFault(f"The template failed: {error or type(error).__name__}.") from None
        return "".join(parts)


def read_template(given: str) -> PromptTemplate:
    """The template that --template gives: its text, or the file that holds it. Raises UsageError."""
    if "{" in given:
        return PromptTemplate(given)
    try:
        text = Path(given).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"--template {given!r} has no {{{{ }}}} in it, and as a file it cannot be read: {reason}.",
            hint="Write it as in --template 'Summarise: {{ text }}'.",
        ) from None
    return PromptTemplate(text.removesuffix("\n").removesuffix("\r"), given)


def _reason(error: TemplateError, columns: Mapping[str, Any]) -> str:
    text = (error.message or type(error).__name__).rstrip(".")
    name = text.split("'")[1] if text.endswith("is undefined") and "'" in text else ""
    if not name or name in columns:
        return text
    return f"the row has no column {name!r}. {nearest(name, columns)}".rstrip(". ")
