"""The JSON files of a model folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gencli.errors import ModelError

__all__ = ["read_object", "read_object_if_any"]


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}, so it is no model folder.") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}.") from None
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} should hold a JSON object.")
    return found


def read_object_if_any(path: Path) -> dict[str, Any]:
    """The same, or {}: for a look at a model that loading will judge."""
    try:
        return read_object(path)
    except ModelError:
        return {}
