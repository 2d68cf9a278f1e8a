"""The configuration of a model: config.json of a folder, or a GGUF file's metadata under its names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.models.files.json_files import read_object
from gencli.models.gguf.config import gguf_config
from gencli.models.gguf.head import is_gguf, read_gguf_head

__all__ = ["read_config", "read_config_if_any"]


def read_config(model: Path) -> dict[str, Any]:
    """Return the configuration of a folder or a GGUF file. Raises ModelError if there is none."""
    return gguf_config(read_gguf_head(model)) if is_gguf(model) else read_object(model / "config.json")


def read_config_if_any(model: Path) -> dict[str, Any]:
    """Return the configuration, or {} on any fault, which loading the model will report."""
    try:
        return read_config(model)
    except ModelError:
        return {}
