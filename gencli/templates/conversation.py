"""Conversations in the model's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = ["has_system", "render_conversation", "with_system"]

_Message = Mapping[str, str]


def has_system(messages: Sequence[_Message]) -> bool:
    """Whether the messages begin with a system message."""
    return bool(messages) and messages[0].get("role") in ("system", "developer")


def with_system(messages: Sequence[_Message], system: str | None) -> tuple[_Message, ...]:
    """The messages, after a system message if one is given and they have none of their own."""
    if system is None or has_system(messages):
        return tuple(messages)
    return ({"role": "system", "content": system}, *messages)


def render_conversation(
    tokenizer: Tokenizer,
    messages: Sequence[_Message],
    *,
    system: str | None = None,
    tools: Sequence[Any] = (),
) -> str:
    """Return the messages in the chat template, with the system message as `with_system` has it.

    Raises ModelError if there is no template, or if it fails.
    """
    told = {"tools": list(tools)} if tools else {}
    return tokenizer.render_chat(with_system(messages, system), **told)
