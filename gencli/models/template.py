"""What a model's files say of its chat template, before its tokenizer is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gencli.models.places import find_local

__all__ = ["declared_template"]


def declared_template(name: str) -> tuple[str | None, frozenset[str]]:
    """The chat template of a model on this machine, and the texts of its special tokens."""
    folder = find_local(name)
    if folder is None:
        return None, frozenset()
    config = _json(folder / "tokenizer_config.json")
    special = [
        str(token.get("content"))
        for token in (*_added(folder), *config.get("added_tokens_decoder", {}).values())
        if token.get("special")
    ]
    return _template(folder, config), frozenset(special)


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    found = _json(folder / "chat_template.json").get("chat_template") or config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {str(entry.get("name")): entry.get("template") for entry in found}
        found = named.get("tool_use") or named.get("default")
    return found if isinstance(found, str) else None


def _added(folder: Path) -> list[dict[str, Any]]:
    found = _json(folder / "tokenizer.json").get("added_tokens", [])
    return found if isinstance(found, list) else []


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
