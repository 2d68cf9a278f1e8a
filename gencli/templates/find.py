"""Find prompt templates by name in ./templates and the user's folder."""

from __future__ import annotations

import os
from pathlib import Path

from gencli.errors import UsageError
from gencli.structured.files import exists
from processors.names import close_names, did_you_mean

__all__ = ["find_template", "template_file", "template_folders"]

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
                raise UsageError(f"The template {path} is there, but is no file.")
        if folder.is_dir():
            names += [path.stem for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
    hint = did_you_mean([repr(near) for near in close_names(name, names)])
    raise UsageError(
        f"There is no template {name[:60]!r}.",
        hint=hint or "gencli config path shows the template folders; a template's text has {{ }} in it.",
    )
