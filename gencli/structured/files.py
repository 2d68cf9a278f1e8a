"""Which values of options are files: read where a user gives them, refused where data does."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["YAML", "exists", "named_file"]

YAML = (".yaml", ".yml")
_SCHEMAS = (".json", *YAML)
_ALWAYS = ("structural_tag", "tools")


def named_file(kind: str, text: str, folder: Path = Path()) -> Path | None:
    """The file that the value of an option of this key names; None where the value is the structure itself.

    Tools and tags stand in files. A grammar without a colon or a newline is a file. A schema is one if its
    name ends in .json, .yaml or .yml, or exists; not if it begins with {, or is true or false. Relative
    names are those of files in `folder`.
    """
    stripped = text.strip()
    path = folder / os.path.expanduser(stripped)
    if kind in ("grammar", "lark"):
        return path if not {":", "\n"} & set(text) else None
    if kind == "json_schema":
        is_json = stripped.startswith("{") or stripped in ("true", "false")
        is_name = stripped.lower().endswith(_SCHEMAS) and "\n" not in stripped
        return path if not is_json and (is_name or exists(path)) else None
    return path if kind in _ALWAYS else None


def exists(path: Path) -> bool:
    """Whether there is a file of this name; False for what cannot be a name."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or no name
        return False
