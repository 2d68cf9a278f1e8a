"""A conversation as a value: every change gives a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gencli.errors import GenerationError, UsageError
from gencli.templates.conversation import render_conversation

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer

__all__ = ["Conversation", "Turn", "draw_seed", "prompt_ids"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What was said, what was answered, how the answer ended (empty: it is to come), and which try it is."""

    said: str
    answer: str = ""
    reason: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in their order. `seed` and the number of a turn decide its draws."""

    seed: int
    system: str | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether the last turn has no answer yet."""
        return bool(self.turns) and not self.turns[-1].reason

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages of a chat template."""
        found = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns:
            found.append({"role": "user", "content": turn.said})
            if turn.reason:
                found.append({"role": "assistant", "content": turn.answer})
        return found

    def asked(self, text: str) -> Conversation:
        """With a turn that waits for its answer."""
        return replace(self, turns=(*self.turns, Turn(text)))

    def answered(self, text: str, reason: str) -> Conversation:
        """With the answer of the last turn."""
        return self._with_last(replace(self._last(), answer=text, reason=reason))

    def undone(self) -> Conversation:
        """Without the last turn."""
        self._last()
        return replace(self, turns=self.turns[:-1])

    def again(self) -> Conversation:
        """Waiting for another answer to the last turn."""
        last = self._last()
        return self._with_last(Turn(last.said, attempt=last.attempt + 1))

    def edited(self, text: str) -> Conversation:
        """Waiting for the answer to other words in the last turn."""
        self._last()
        return self._with_last(Turn(text))

    def _last(self) -> Turn:
        if not self.turns:
            raise UsageError("There is no turn yet.")
        return self.turns[-1]

    def _with_last(self, turn: Turn) -> Conversation:
        return replace(self, turns=(*self.turns[:-1], turn))


def draw_seed(conversation: Conversation) -> int:
    """The seed of the last turn: of row number `turn` of a run; another attempt mixes in its number."""
    from processors.rng import derive

    seed = derive(conversation.seed, len(conversation.turns) - 1)
    attempt = conversation.turns[-1].attempt
    return derive(seed, attempt) if attempt else seed


def prompt_ids(
    conversation: Conversation,
    tokenizer: Tokenizer,
    *,
    is_raw: bool,
    context: int,
    tools: Sequence[Any] = (),
) -> tuple[int, ...]:
    """The prompt of the next answer; GenerationError if it leaves no room for one.

    `tools` are told to the chat template.
    """
    if is_raw:
        ids = tokenizer.encode(_below_each_other(conversation.turns))
    else:
        text = render_conversation(tokenizer, conversation.messages, tools=tools)
        ids = tokenizer.encode(text, special=False)
    if len(ids) >= context:
        raise GenerationError(
            f"The conversation has {len(ids)} tokens, and the model takes {context} with the answer.",
            hint="/undo takes back the last turn, /clear all of them.",
        )
    return tuple(ids)


def _below_each_other(turns: Sequence[Turn]) -> str:
    return "\n".join(turn.said + turn.answer for turn in turns)
