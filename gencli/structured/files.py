"""Values of options that may be file names. A user may name files, data may not."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["YAML", "exists", "is_schema_name", "named_file"]

YAML = (".yaml", ".yml")
_SCHEMAS = (".json", *YAML)
_CONCISE = set(" ,:?[]{}()'\"")  # signs of the concise notation of schemas
_PATHS = ("/", "./", "../", "~/")  # how no field of the concise notation begins
_OBJECTS = ("structural_tag", "tools")


def named_file(kind: str, text: str, folder: Path = Path()) -> Path | None:
    """Return the file named by the value of an option; None if the value is the structure itself.

    A watermark's key is a file. Tools and structural tags are files unless they begin with [ or {. A grammar
    without a colon or a newline is a file. A schema is a file if it ends in .json, .yaml or .yml, begins as a
    path, has a slash and is one word, or exists, unless it begins with { or is true or false. Relative names
    are relative to `folder`.
    """
    stripped = text.strip()
    path = folder / os.path.expanduser(stripped)
    if kind == "watermark_key":
        return path
    if kind in ("grammar", "lark"):
        return path if not {":", "\n"} & set(text) else None
    if kind == "json_schema":
        is_json = stripped.startswith("{") or stripped in ("true", "false")
        return path if not is_json and (is_schema_name(text) or exists(path)) else None
    return path if kind in _OBJECTS and not stripped.startswith(("[", "{")) else None


def is_schema_name(text: str) -> bool:
    """Return whether a text names a schema file, by its ending or as a path."""
    stripped = text.strip()
    is_path = stripped.startswith(_PATHS) or ("/" in stripped and not _CONCISE & set(stripped))
    return (is_path or stripped.lower().endswith(_SCHEMAS)) and "\n" not in stripped


def exists(path: Path) -> bool:
    """Whether there is a file of this name; False for a text that cannot be a name."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or not a name
        return False
