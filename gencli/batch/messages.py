"""The messages of a row: reading them, and the conversation passed to the chat template."""

from __future__ import annotations

from typing import Any

from gencli.batch.formats.jsonl import parse_json
from gencli.batch.records import Row
from gencli.config.job import Job
from gencli.templates.chat_templates import Message, check_messages, with_system

__all__ = ["conversation", "read_messages"]


def conversation(row: Row, job: Job) -> tuple[Message, ...]:
    """Return the messages that the chat template renders for a row; () for a raw prompt.

    The job's system message is prepended to messages without a system message.
    """
    if not job.is_chat:
        return ()
    messages = row.messages or ({"role": "user", "content": row.prompt or ""},)
    return with_system(messages, job.system)


def read_messages(value: Any) -> tuple[Message, ...]:
    """Return the messages of a row; () for None. A text is read as JSON. Raises UsageError."""
    if value is None:
        return ()
    return check_messages(parse_json(value) if isinstance(value, str) else value)
