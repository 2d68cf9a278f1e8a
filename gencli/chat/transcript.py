"""Transcripts: a chat as a JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli.chat.conversation import Conversation, Turn
from gencli.chat.state import FREE, Chat, changeable
from gencli.errors import ConfigError, UsageError
from gencli.files import read_file, replaced

__all__ = ["Transcript", "load", "restore", "save", "to_document"]

_FORMAT = "gencli chat 1"
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Transcript:
    """The content of a file: model, conversation, settings as typed, and presets."""

    model: str
    conversation: Conversation
    typed: dict[str, Any]
    presets: tuple[str, ...] = ()


def to_document(chat: Chat) -> dict[str, Any]:
    """Return the document. Its `turn` is the index of the next turn, on which the turn's draws depend."""
    conversation = chat.conversation
    system = [] if conversation.system is None else [{"role": "system", "content": conversation.system}]
    return {
        "format": _FORMAT,
        "model": chat.settings["model"],
        "preset": list(chat.settings["preset"]),
        "seed": conversation.seed,
        "turn": len(conversation.turns),
        "settings": {"raw": True, **chat.typed} if chat.settings["raw"] else chat.typed,
        **_schema(chat),
        "messages": [*system, *(message for turn in conversation.turns for message in _messages(turn))],
    }


def save(chat: Chat, path: Path) -> None:
    """Write the document. Raises UsageError if the file cannot be written."""
    text = json.dumps(to_document(chat), indent=2, ensure_ascii=False) + "\n"
    try:
        with replaced(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}.") from error


def load(path: Path) -> Transcript:
    """Read a document.

    Raises UsageError if the file cannot be read, ConfigError if it is not a transcript.
    """
    try:
        document = json.loads(read_file(path, _MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON: {error}.") from None
    except RecursionError:
        raise ConfigError(f"{path}: is not a transcript: it is nested too deep.") from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ConfigError(f"{path}: is not a transcript: its format is not {_FORMAT!r}.")
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: is a damaged transcript: {type(error).__name__}: {error}.") from None


def restore(chat: Chat, transcript: Transcript, origin: str) -> Chat:
    """Return the chat with the transcript's conversation and settings; the model is unchanged.

    Raises UsageError if one of them is raw and the other is not, or for settings that conflict.
    """
    typed = dict(transcript.typed)
    if bool(typed.pop("raw", False)) != chat.settings["raw"]:
        raise UsageError("Either the chat or the transcript is `raw`, but not both.")
    return chat.with_typed(typed, origin).with_conversation(transcript.conversation)


def _schema(chat: Chat) -> dict[str, Any]:
    """Return the schema itself, not the name of its file; null for free answers; {} for other structures."""
    structure = chat.job.structure
    if not chat.is_structure_typed or (structure and structure.kind != "json_schema"):
        return {}
    return {"schema": structure.plan.schema if structure else None}


def _messages(turn: Turn) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": turn.user}
    if turn.reason:
        answer = {"role": "assistant", "content": turn.answer, "finish_reason": turn.reason}
        yield {**answer, "attempt": turn.attempt} if turn.attempt else answer


def _read(document: dict[str, Any]) -> Transcript:
    messages, system = list(document["messages"]), None
    if messages and messages[0]["role"] == "system":
        system = str(messages.pop(0)["content"])
    roles = [message["role"] for message in messages]
    if roles != ["user", "assistant"] * (len(roles) // 2):
        raise ValueError("the roles do not alternate")
    turns = tuple(
        Turn(str(a["content"]), str(b["content"]), str(b["finish_reason"]), int(b.get("attempt", 0)))
        for a, b in zip(messages[::2], messages[1::2], strict=True)
    )
    conversation = Conversation(int(document["seed"]), system, turns)
    presets = tuple(map(str, document.get("preset", ())))
    typed = _read_settings(document["settings"]) | _read_schema(document)
    return Transcript(str(document["model"]), conversation, typed, presets)


def _read_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Return the typed values for the schema's text, so that a transcript never names a file."""
    if "schema" not in document:
        return {}
    if not isinstance(schema := document["schema"], dict | bool | None):
        raise TypeError(f"the schema is {schema!r}")
    return {**FREE, "json_schema": "" if schema is None else json.dumps(schema)}


def _read_settings(settings: dict[str, Any]) -> dict[str, Any]:
    known = {entry.key: entry for entry in changeable()}
    for key, value in settings.items():
        if key == "raw" and value is True:
            continue
        if key not in known:
            raise ValueError(f"a chat has no setting {key!r}")
        items = value if known[key].many and isinstance(value, list) else [value]
        kind = bool if known[key].type is bool else str
        if (known[key].many and items is not value) or not all(isinstance(item, kind) for item in items):
            raise ValueError(f"the setting {key} is {value!r}")
    return dict(settings)
