"""Files that a value names: a preset's lie beside the preset, not where the command is given."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["placed"]

_FILES = ("structural_tag", "tools")
_FILES_OR_TEXTS = ("json_schema", "grammar", "lark")
_ENDINGS = (".json", ".yaml", ".yml")  # of schemas, whether the file exists or not


def placed(key: str, value: Any, folder: Path) -> Any:
    """The value of a key, with the whole path if it names a file relative to `folder`."""
    if not isinstance(value, str) or not (
        key in _FILES or (key in _FILES_OR_TEXTS and _is_file(key, value, folder))
    ):
        return value
    return os.path.abspath(folder / Path(value.strip()).expanduser())


def _is_file(key: str, value: str, folder: Path) -> bool:
    if "\n" in value.strip() or value.lstrip().startswith("{"):
        return False
    if key == "json_schema" and value.strip().lower().endswith(_ENDINGS):
        return True
    with suppress(OSError, ValueError):  # too long for a name, or no name
        return (folder / Path(value).expanduser()).is_file()
    return False
