"""What a prompt tells the model about the structure of its output: a schema, choices, or tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["NOTHING", "ChatTemplate", "Instructions"]

Message = Mapping[str, Any]
_SYSTEM = ("system", "developer")


class ChatTemplate(Protocol):
    """Interface of a tokenizer: what its chat template has a place for."""

    @property
    def has_system_turn(self) -> bool:
        """Whether it writes system messages."""
        ...

    def renders_tools(self, tools: Sequence[Any]) -> bool:
        """Whether it writes each of these tools into a conversation."""
        ...


@dataclass(frozen=True, slots=True)
class Instructions:
    """Texts for the system turn, or before a raw prompt.

    `text` is in every prompt; "" is none. `tools`: for the chat template. `tools_text` tells the tools where
    the template does not; "" does not tell them. `is_raw_told`: raw prompts have `tools_text` as well.
    `notice`: for the user, before the run.
    """

    text: str = ""
    tools: tuple[Any, ...] = ()
    tools_text: str = ""
    is_raw_told: bool = False
    notice: str = ""

    @property
    def before(self) -> str:
        """The text before a raw prompt, with the empty line between them; "" without one."""
        text = _joined(self.text, self.tools_text if self.is_raw_told else "")
        return f"{text}\n\n" if text else ""

    def tools_of(self, template: ChatTemplate) -> tuple[Any, ...]:
        """Return the tools that the chat template renders; () if it has no place for them."""
        return self.tools if self.tools and template.renders_tools(self.tools) else ()

    def added(
        self, messages: Sequence[Message], template: ChatTemplate, *, has_place: bool
    ) -> tuple[Message, ...]:
        """Return the messages with the texts: at the end of the system turn, which is made if there is none.

        If the template takes no system turn, the texts are before the first message of the user. `has_place`:
        whether the template writes the tools.
        """
        text = _joined(self.text, "" if has_place else self.tools_text)
        if not text:
            return tuple(messages)
        if messages and messages[0]["role"] in _SYSTEM:
            first, *rest = messages
            return {**first, "content": _joined(first["content"], text)}, *rest
        if template.has_system_turn:
            return {"role": "system", "content": text}, *messages
        place = next((n for n, one in enumerate(messages) if one["role"] == "user"), None)
        if place is None:
            return {"role": "user", "content": text}, *messages
        asked = {**messages[place], "content": _joined(text, messages[place]["content"])}
        return *messages[:place], asked, *messages[place + 1 :]

    def notices(self, template: ChatTemplate) -> tuple[str, ...]:
        """Return what the user should know about tools in conversations of this model."""
        if not self.tools or self.tools_of(template):
            return ()
        if self.tools_text and not self.is_raw_told:
            return (
                "The chat template has no place for tools, so a text in the prompt tells the model of them; "
                "`schema_in_prompt` = off leaves it out.",
            )
        if not self.tools_text and not self.text:
            return (
                "The chat template has no place for tools, and `schema_in_prompt` is off: nothing tells the "
                "model of them.",
            )
        return ()


NOTHING = Instructions()


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))
