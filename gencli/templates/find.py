"""Where prompt templates are looked for by name: ./templates and the user's folder."""

from __future__ import annotations

import os
from pathlib import Path

from gencli.errors import UsageError
from gencli.structured.files import exists
from processors.names import close_names, did_you_mean

__all__ = ["find_template", "template_file", "template_folders"]

_SUFFIXES = (".jinja", ".j2")


def template_folders() -> tuple[tuple[str, Path], ...]:
    """Label and folder, in the order in which they are searched."""
    from platformdirs import user_config_path

    return ("./templates", Path.cwd() / "templates"), ("templates", user_config_path("gencli") / "templates")


def template_file(given: str, folder: Path = Path()) -> Path | None:
    """Return the file that a value names, relative to `folder`; None for a template's text and for a name.

    A text has a brace in it. A name has neither a folder nor a suffix, and no file is called so.
    """
    if "{" in given:
        return None
    path = folder / os.path.expanduser(given)
    is_path = bool(Path(given).suffix) or "/" in given or "\\" in given
    return path if is_path or exists(path) else None


def find_template(name: str) -> Path:
    """Return the file of a template that is given by name. Raises UsageError."""
    names: list[str] = []
    for _, folder in template_folders():
        for suffix in _SUFFIXES:
            if exists(path := folder / f"{name}{suffix}"):
                return path
        if folder.is_dir():
            names += [path.stem for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES]
    hint = did_you_mean([repr(found) for found in close_names(name, names)])
    raise UsageError(
        f"There is no template {name[:60]!r}.",
        hint=hint or "gencli config path shows where they are looked for; a template's text has {{ }} in it.",
    )
