"""Items to score: a text, a continuation of a context, choices after a context, the last turn of a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gencli.errors import UsageError
from gencli.templates.chat_templates import Message, check_messages

__all__ = ["ChatItem", "ChoiceItem", "Item", "PairItem", "TextItem", "read_item"]

_FORMS = "Give a text; or a context with a continuation or choices; or messages, the last one an answer."


@dataclass(frozen=True, slots=True)
class TextItem:
    """A text that is scored as a whole."""

    text: str


@dataclass(frozen=True, slots=True)
class PairItem:
    """A continuation, scored after a context."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True)
class ChoiceItem:
    """Continuations of one context to compare."""

    context: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChatItem:
    """A conversation; the content of its last message is scored after the other messages."""

    messages: tuple[Message, ...]


Item = TextItem | PairItem | ChoiceItem | ChatItem


def read_item(value: Any) -> Item:
    """Return the item of a text, a pair of texts or a mapping with columns. Raises UsageError."""
    if isinstance(value, TextItem | PairItem | ChoiceItem | ChatItem):
        return value
    if isinstance(value, str):
        return _filled(TextItem(value), value)
    if isinstance(value, Mapping):
        return _from_columns(value)
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return _filled(PairItem(value[0], value[1]), value[1])
    raise UsageError(f"{str(value)[:60]!r} cannot be scored.", hint=_FORMS)


def _from_columns(columns: Mapping[str, Any]) -> Item:
    given = {key for key, value in columns.items() if value is not None}
    kinds = [kind for kind in ("text", "continuation", "choices", "messages") if kind in given]
    if len(kinds) != 1:
        found = " and ".join(kinds) if kinds else ", ".join(sorted(map(str, given))[:8]) or "nothing"
        raise UsageError(f"A row to score has {found}.", hint=_FORMS)
    (kind,) = kinds
    if kind == "text":
        return _filled(TextItem(_text(columns, "text")), columns["text"])
    if kind == "messages":
        return _chat(columns["messages"])
    context = _text(columns, "context") if "context" in given else ""
    if kind == "continuation":
        return _filled(PairItem(context, _text(columns, kind)), columns[kind])
    choices = columns["choices"]
    if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) < 1:
        raise UsageError("choices has to be a list of texts.", hint=_FORMS)
    if not all(isinstance(choice, str) and choice for choice in choices):
        raise UsageError("choices has an entry that is no text, or empty.")
    return ChoiceItem(context, tuple(choices))


def _chat(value: Any) -> ChatItem:
    messages = check_messages(value)
    if len(messages) < 2 or messages[-1]["role"] != "assistant" or not messages[-1]["content"]:
        raise UsageError("messages has to end with an answer: a message of the assistant with content.")
    return ChatItem(messages)


def _text(columns: Mapping[str, Any], key: str) -> str:
    value = columns[key]
    if not isinstance(value, str):
        raise UsageError(f"{key} is {str(value)[:60]!r}, but has to be a text.")
    return value


def _filled(item: Item, text: str) -> Item:
    if not text:
        raise UsageError("An empty text has nothing to score.")
    return item
