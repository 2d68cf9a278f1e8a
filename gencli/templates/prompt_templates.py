"""Prompts from a Jinja2 template in a sandbox, found by name in ./templates and the user's folder.

A variable without a value is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gencli.errors import GencliError, UsageError
from gencli.files import read_file
from gencli.helpers import ended
from gencli.structured.schema_inputs import exists
from gencli.templates.chat_templates import MAX_PROMPT, RenderOrder, renderer
from processors.errors import close_names, did_you_mean, nearest

_MAX_BYTES = 1 << 20  # bytes of a template's file
_WHOLE = "row"  # the variable that holds all columns
_Variables = Sequence[tuple[str, str]]


class TemplateFault(GencliError):
    """The template failed for these columns; `missing` is a variable without a value.

    `is_of_columns`: the template uses a column that the row lacks.
    """

    def __init__(self, message: str, *, is_of_columns: bool = False, missing: str = "") -> None:
        super().__init__(message)
        self.is_of_columns = is_of_columns
        self.missing = missing


class PromptTemplate:
    """A template and the values of some of its variables; a row's columns give the others.

    `text` is the source, `names` are the variables without a value. Raises UsageError for invalid syntax, and
    for a variable that the template does not use.
    """

    def __init__(self, text: str, name: str = "`template`", variables: _Variables = ()) -> None:
        self.text = text
        syntax = renderer.render(RenderOrder(text, None, is_chat=False, limit=MAX_PROMPT))
        if syntax.error:
            where = f"{name}, line {syntax.line}" if syntax.line else name
            raise UsageError(f"{where}: this is not a Jinja template: {syntax.error}.")
        self._variables = dict(variables)
        for unused in (name for name in self._variables if name not in syntax.names):
            uses = ", ".join(syntax.names) or "none"
            raise UsageError(
                f"The template has no variable {unused[:60]!r}, which is given a value. It uses: {uses}.",
                hint=nearest(unused, syntax.names) or "Leave the value out, or use it in the template.",
            )
        self.names = frozenset(syntax.names) - self._variables.keys()

    def render(self, columns: Mapping[str, Any]) -> str:
        """Return the prompt of a row. Each column is a variable; `row` holds all. Raises TemplateFault."""
        for name in (name for name in self._variables if name in columns or name == _WHOLE):
            raise TemplateFault(
                f"The variable {name!r} of the template has two values: its own and a column."
            )
        variables = {**self._variables, _WHOLE: columns, **columns}
        rendered = renderer.render(RenderOrder(self.text, variables, is_chat=False, limit=MAX_PROMPT))
        if rendered.error:
            reason, missing = rendered.error.rstrip("."), ""
            if reason.endswith("is undefined") and "'" in reason:
                name = reason.split("'")[1]
                missing = "" if name in columns else name
            if missing:
                reason = f"the row has no column {missing!r}. {nearest(missing, columns)}"
            message = f"The template failed: {ended(reason)}"
            raise TemplateFault(message, is_of_columns=rendered.is_undefined, missing=missing)
        return rendered.text


def read_template(
    source: str, variables: _Variables = (), *, name: str = "`template`", pipes: bool = True
) -> PromptTemplate:
    """Return the template given as text, file or name. Raises UsageError.

    `pipes`: the file may be a pipe. `name`: the option's name in messages.
    """
    if "{" in source:
        return PromptTemplate(source, name, variables)
    path = template_file(source) or find_template(source)
    try:
        text = read_file(path, _MAX_BYTES, pipes=pipes).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{name} {source!r} has no {{{{ }}}} in it, and is not a readable file: {reason}.",
            hint="Write it as in `template` = 'Summarise: {{ text }}'.",
        ) from None
    return PromptTemplate(text.removesuffix("\n").removesuffix("\r"), str(path), variables)


_SUFFIXES = (".jinja", ".j2")


def template_folders() -> tuple[tuple[str, Path], ...]:
    """Return label and path of each template folder, in search order."""
    from platformdirs import user_config_path

    return ("./templates", Path.cwd() / "templates"), ("templates", user_config_path("gencli") / "templates")


def template_file(value: str, folder: Path = Path()) -> Path | None:
    """Return the file that a value names, relative to `folder`; None for a template's text or name.

    A text contains a brace. A name has no folder and no suffix, and is not an existing file.
    """
    if "{" in value:
        return None
    path = folder / os.path.expanduser(value)
    is_path = bool(Path(value).suffix) or "/" in value or "\\" in value
    return path if is_path or exists(path) else None


def find_template(name: str) -> Path:
    """Return the file of a template by its name. Raises UsageError."""
    names: list[str] = []
    for _, folder in template_folders():
        for suffix in _SUFFIXES:
            if exists(path := folder / f"{name}{suffix}"):
                return path
            if os.path.lexists(path):
                raise UsageError(f"The template {path} exists, but is not a file.")
        if folder.is_dir():
            names += [path.stem for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
    hint = did_you_mean([repr(near) for near in close_names(name, names)])
    raise UsageError(
        f"There is no template {name[:60]!r}.",
        hint=hint or "gencli config path shows the template folders; a template's text has {{ }} in it.",
    )
