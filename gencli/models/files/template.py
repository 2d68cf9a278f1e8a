"""Read the chat template from a model's files, without loading its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gencli.models.files.json_files import read_object_if_any, read_text
from gencli.models.files.locate import find_local
from gencli.models.gguf.head import is_gguf, read_gguf_head
from gencli.models.gguf.vocabulary import read_vocabulary

__all__ = ["declared_template", "has_template"]


def has_template(folder: Path) -> bool:
    """Return whether a model's folder or GGUF file brings a chat template."""
    if is_gguf(folder):
        return bool(read_gguf_head(folder).chat_template)
    return _template(folder, read_object_if_any(folder / "tokenizer_config.json")) is not None


def declared_template(name: str) -> tuple[str | None, frozenset[str]]:
    """Return the chat template of a local model (None without one), and the texts of its special tokens."""
    folder = find_local(name)
    if folder is None:
        return None, frozenset()
    if is_gguf(folder):
        head = read_gguf_head(folder)
        return _for_tools(head.chat_template), read_vocabulary(head).special
    config = read_object_if_any(folder / "tokenizer_config.json")
    decoded = config.get("added_tokens_decoder")
    tokens = (*_added(folder), *(decoded.values() if isinstance(decoded, dict) else ()))
    special = [
        str(token.get("content")) for token in tokens if isinstance(token, dict) and token.get("special")
    ]
    return _template(folder, config), frozenset(special)


def _for_tools(templates: Any) -> Any:
    """Return the template of a conversation with tools, if there are several."""
    if not isinstance(templates, dict):
        return templates
    return templates.get("tool_use") or templates.get("default")


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    if (folder / "additional_chat_templates" / "tool_use.jinja").is_file():
        return read_text(folder / "additional_chat_templates" / "tool_use.jinja")
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja")
    alone = read_object_if_any(folder / "chat_template.json")
    found = alone.get("chat_template") or config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {str(entry.get("name")): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = _for_tools(named)
    return found if isinstance(found, str) else None


def _added(folder: Path) -> list[dict[str, Any]]:
    found = read_object_if_any(folder / "tokenizer.json").get("added_tokens", [])
    return found if isinstance(found, list) else []
