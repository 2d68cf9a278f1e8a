"""The messages of a row: what they have to be, and what the chat template is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.batch.formats.jsonl import parse_json
from gencli.batch.records import Row
from gencli.config.job import Job
from gencli.errors import UsageError
from gencli.templates.conversation import with_system

__all__ = ["conversation", "read_messages"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


def conversation(row: Row, job: Job) -> tuple[Mapping[str, str], ...]:
    """The messages that the chat template renders for a row; none if its prompt is raw.

    The system message of the job goes before messages that have none of their own.
    """
    if not job.is_chat:
        return ()
    messages = row.messages or ({"role": "user", "content": row.prompt or ""},)
    return with_system(messages, job.system)


def read_messages(value: Any) -> tuple[Mapping[str, str], ...]:
    """The messages of a row, or none. Raises UsageError for what is no conversation in texts."""
    if value is None:
        return ()
    items = parse_json(value) if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise UsageError("messages has to be a list of objects with role and content, and not empty.")
    return tuple(_checked_message(item, number) for number, item in enumerate(items, start=1))


def _checked_message(item: Any, number: int) -> Mapping[str, str]:
    said = f"Message {number}"
    if not isinstance(item, Mapping):
        raise UsageError(f"{said} is {item!r}, but has to be an object with role and content.")
    unknown = [key for key, value in item.items() if key not in ("role", "content") and value is not None]
    if unknown:
        raise UsageError(f"{said} has {unknown[0]!r}, but a message has role and content only.")
    if item.get("role") not in _ROLES:
        raise UsageError(f"{said} has the role {item.get('role')!r}, but it is one of {', '.join(_ROLES)}.")
    return _message(item["role"], _content(item.get("content"), said))


def _content(value: Any, said: str) -> str:
    """The text of a message; a list of text parts is joined."""
    if isinstance(value, list) and value:
        parts = [part for part in value if isinstance(part, Mapping)]
        kinds = {part.get("type") for part in parts}
        if (
            len(parts) == len(value)
            and kinds == {"text"}
            and all(isinstance(p.get("text"), str) for p in parts)
        ):
            return "".join(part["text"] for part in parts)
        other = sorted(str(kind) for kind in kinds - {"text"})
        raise UsageError(f"{said} has a part that is no text{': ' + other[0] if other else ''}.")
    if not isinstance(value, str):
        raise UsageError(f"{said} has no content that is a text.")
    return value


def _part(part: Any, said: str) -> str:
    if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        kind = f": {part.get('type')}" if isinstance(part, Mapping) else ""
        raise UsageError(f"{said} has a part that is no text{kind}.")
    return str(part["text"])


def _message(role: str, content: str) -> Mapping[str, str]:
    return {"role": role, "content": content}
