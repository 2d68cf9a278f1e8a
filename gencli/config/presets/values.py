"""File names in values of presets: relative to the preset, not to the current folder."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from gencli.structured.schema_inputs import named_file
from gencli.templates.prompt_templates import template_file

__all__ = ["placed"]


def placed(key: str, value: Any, folder: Path) -> Any:
    """Return the value of a key; a file relative to `folder` becomes an absolute path."""
    find = template_file if key == "template" else partial(named_file, key)
    path = find(value, folder) if isinstance(value, str) else None
    return value if path is None else os.path.abspath(path)
