"""Prompts from a template: Jinja2 in its sandbox, where a name without a value is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gencli.config.settings import FLAG, Settings
from gencli.errors import GencliError, UsageError
from gencli.files import read_file
from gencli.templates.find import find_template, template_file
from gencli.templates.messages import MAX_PROMPT, Order
from gencli.templates.renderer import renderer
from processors.errors import nearest

__all__ = ["PromptTemplate", "TemplateFault", "read_template", "wanted_template"]

_MAX_BYTES = 1 << 20  # of a template's file
_WHOLE = "row"  # the variable that holds all columns
_Variables = Sequence[tuple[str, str]]


class TemplateFault(GencliError):
    """The template has no result for these columns; `missing` is the name that it has no value for.

    `is_of_columns` says that it names what the columns lack.
    """

    def __init__(self, message: str, *, is_of_columns: bool = False, missing: str = "") -> None:
        super().__init__(message)
        self.is_of_columns = is_of_columns
        self.missing = missing


class PromptTemplate:
    """A template with the values of its variables, as it is applied to columns.

    `text` is its source, `names` are the variables in it that have no value yet. Raises UsageError for what
    is no template, and for a variable that it does not use.
    """

    def __init__(self, text: str, name: str = "--template", variables: _Variables = ()) -> None:
        self.text = text
        found = renderer.render(Order(text, None, is_chat=False, limit=MAX_PROMPT))
        if found.error:
            where = f"{name}, line {found.line}" if found.line else name
            raise UsageError(f"{where}: this is no Jinja template: {found.error}.")
        self._variables = dict(variables)
        for unused in (one for one in self._variables if one not in found.names):
            uses = ", ".join(found.names) or "none"
            raise UsageError(
                f"The template has no variable {unused[:60]!r}, which is given a value. It uses: {uses}.",
                hint=nearest(unused, found.names) or "Leave the value out, or use it in the template.",
            )
        self.names = frozenset(found.names) - self._variables.keys()

    def render(self, columns: Mapping[str, Any]) -> str:
        """Return the prompt for a row. A column is a variable; `row` is all of them. Raises TemplateFault."""
        for name in (one for one in self._variables if one in columns or one == _WHOLE):
            raise TemplateFault(
                f"The variable {name!r} of the template has two values: its own and a column."
            )
        variables = {**self._variables, _WHOLE: columns, **columns}
        found = renderer.render(Order(self.text, variables, is_chat=False, limit=MAX_PROMPT))
        if found.error:
            missing = _missing(found.error)
            missing = "" if missing in columns else missing
            reason = found.error.rstrip(".")
            if missing:
                reason = f"the row has no column {missing!r}. {nearest(missing, columns)}".rstrip(". ")
            raise TemplateFault(
                f"The template failed: {reason}.", is_of_columns=found.is_undefined, missing=missing
            )
        return found.text


def read_template(
    given: str, variables: _Variables = (), *, name: str = "--template", pipes: bool = True
) -> PromptTemplate:
    """Return the template that is given as text, file or name. Raises UsageError.

    `pipes` lets the file be a pipe as well. `name` is the option as whoever set it knows it.
    """
    if "{" in given:
        return PromptTemplate(given, name, variables)
    path = template_file(given) or find_template(given)
    try:
        text = read_file(path, _MAX_BYTES, pipes=pipes).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{name} {given!r} has no {{{{ }}}} in it, and as a file it cannot be read: {reason}.",
            hint="Write it as in --template 'Summarise: {{ text }}'.",
        ) from None
    return PromptTemplate(text.removesuffix("\n").removesuffix("\r"), str(path), variables)


def wanted_template(settings: Settings) -> PromptTemplate | None:
    """Return the template that the settings name, with its variables; None if they name none.

    Raises UsageError.
    """
    if settings["template"] is None:
        return None
    is_typed = settings.origin("template") == FLAG
    name = settings.name("template")
    return read_template(settings["template"], settings["vars"], name=name, pipes=is_typed)


def _missing(error: str) -> str:
    """Return the name that has no value, of an error that says so."""
    text = error.rstrip(".")
    return text.split("'")[1] if text.endswith("is undefined") and "'" in text else ""
