"""Read text and JSON files of a model folder: regular files of limited size and depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.files import read_file

__all__ = ["read_object", "read_object_if_any", "read_text"]

_MAX_BYTES = 256 << 20  # of a file; the largest tokenizer.json have about 40 MB


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ModelError if there is none."""
    try:
        found = json.loads(read_text(path))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}.") from None
    except RecursionError:
        raise ModelError(f"{path} is not valid: its values are nested too deep.") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} should hold a JSON object.")
    return found


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ModelError if it is missing, too large, irregular, or no UTF-8."""
    try:
        return read_file(path, _MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}, so it is no model folder.") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None


def read_object_if_any(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or {} on any fault, which loading the model will report."""
    try:
        return read_object(path)
    except ModelError:
        return {}
