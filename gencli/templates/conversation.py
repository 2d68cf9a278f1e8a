"""Conversations: check their messages, and render them with the model's chat template."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gencli.errors import ModelError, UsageError
from gencli.templates.instructions import NOTHING, Instructions

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = [
    "ROLES",
    "Message",
    "check_messages",
    "has_system",
    "render_conversation",
    "text_content",
    "with_system",
]

Message = Mapping[str, Any]  # role and content as text; from the server also tool calls
ROLES = ("system", "developer", "user", "assistant", "tool")


def check_messages(messages: Any) -> tuple[Message, ...]:
    """Return the messages with `role` and `content` as text. Content in text parts is joined.

    Raises UsageError unless it is a non-empty sequence of valid messages; the error has the number of the
    invalid one.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        raise UsageError("messages has to be a list of objects with role and content, and not empty.")
    return tuple(_check_message(message, f"Message {n}") for n, message in enumerate(messages, start=1))


def _check_message(message: Any, name: str) -> Message:
    if not isinstance(message, Mapping):
        raise UsageError(f"{name} is {message!r}, but has to be an object with role and content.")
    unknown = [k for k, value in message.items() if k not in ("role", "content") and value is not None]
    if unknown:
        raise UsageError(f"{name} has {unknown[0]!r}, but a message has role and content only.")
    if message.get("role") not in ROLES:
        raise UsageError(f"{name} has the role {message.get('role')!r}, but it is one of {', '.join(ROLES)}.")
    return {"role": message["role"], "content": text_content(message.get("content"), name)}


def text_content(value: Any, name: str) -> str:
    """Return the text of a message's content; text parts are joined. Raises UsageError with `name`."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise UsageError(f"{name} has no content that is a text.")
    for part in value:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            other = f": {kind}" if kind not in (None, "text") else ""
            raise UsageError(f"{name} has a part that is no text{other}.")
    return "".join(part["text"] for part in value)


def has_system(messages: Sequence[Message]) -> bool:
    """Whether the messages begin with a system message."""
    return bool(messages) and messages[0].get("role") in ("system", "developer")


def with_system(messages: Sequence[Message], system: str | None) -> tuple[Message, ...]:
    """Return the messages; `system` is prepended if they have no system message."""
    if system is None or has_system(messages):
        return tuple(messages)
    return ({"role": "system", "content": system}, *messages)


def render_conversation(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    system: str | None = None,
    instructions: Instructions = NOTHING,
    variables: Mapping[str, Any] | None = None,
    is_continued: bool = False,
) -> str:
    """Return the messages rendered by the chat template, with `system` as in `with_system`.

    `instructions`: texts that are added to the messages, and tools for a template that has a place for them.
    `variables`: further variables of the template. With `is_continued` the text ends with the last message,
    so that the model continues it. Raises ModelError if the model has no chat template, or if the template
    fails.
    """
    tools = instructions.tools_of(tokenizer)
    given = {**(variables or {}), **({"tools": list(tools)} if tools else {})}
    messages = instructions.added(with_system(messages, system), tokenizer, has_place=bool(tools))
    if not is_continued:
        return tokenizer.render_chat(messages, **given)
    *rest, last = messages
    mark = f"END{secrets.token_hex(8)}"  # templates may strip a content, or quote it
    marked = {**last, "content": last["content"] + mark}
    given["add_generation_prompt"] = False
    text, found, _ = tokenizer.render_chat((*rest, marked), **given).rpartition(mark)
    if not found:
        raise ModelError("The chat template does not write the last message, so no answer can go on with it.")
    return text
