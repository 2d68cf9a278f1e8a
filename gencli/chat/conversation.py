"""A conversation as an immutable value; prompt ids and seed of its next answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gencli.errors import GenerationError, UsageError
from gencli.templates.chat_templates import NOTHING, Instructions, render_conversation

if TYPE_CHECKING:
    from gencli.config.job import Job
    from gencli.text.tokenizer import Tokenizer

__all__ = ["Conversation", "Turn", "draw_seed", "prompt_ids"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's message and its answer.

    `reason`: why the answer ended, "" before its end. `attempt`: number of retries. `job`: settings of the
    answer, None if they are unknown.
    """

    user: str
    answer: str = ""
    reason: str = ""
    attempt: int = 0
    job: Job | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order. Draws of a turn depend on `seed` and the turn's index."""

    seed: int
    system: str | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether the last turn has no answer yet."""
        return bool(self.turns) and not self.turns[-1].reason

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages for a chat template."""
        messages = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.user})
            if turn.reason:
                messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def asked(self, text: str) -> Conversation:
        """Return a copy with a new turn that has no answer yet."""
        return replace(self, turns=(*self.turns, Turn(text)))

    def answered(self, text: str, reason: str, job: Job | None = None) -> Conversation:
        """Return a copy with the answer of the last turn. Raises UsageError without a turn."""
        return self._with_last(replace(self.last(), answer=text, reason=reason, job=job))

    def undone(self) -> Conversation:
        """Return a copy without the last turn. Raises UsageError if there is none."""
        self.last()
        return replace(self, turns=self.turns[:-1])

    def again(self) -> Conversation:
        """Return a copy whose last turn is unanswered, as its next attempt.

        Raises UsageError if there is no turn.
        """
        last = self.last()
        return self._with_last(Turn(last.user, attempt=last.attempt + 1))

    def edited(self, text: str) -> Conversation:
        """Return a copy with another last turn, unanswered. Raises UsageError if there is no turn."""
        self.last()
        return self._with_last(Turn(text))

    def last(self) -> Turn:
        """Return the last turn. Raises UsageError if there is none."""
        if not self.turns:
            raise UsageError("There is no turn yet.")
        return self.turns[-1]

    def _with_last(self, turn: Turn) -> Conversation:
        return replace(self, turns=(*self.turns[:-1], turn))


def draw_seed(conversation: Conversation) -> int:
    """Return the seed of the last turn: derive(seed, index of the turn), for attempt k derived by k again."""
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
    instructions: Instructions = NOTHING,
) -> tuple[int, ...]:
    """Return the prompt ids of the next answer. `context`: in tokens.

    Raises GenerationError if the prompt leaves no room for an answer.
    """
    if is_raw:
        ids = tokenizer.encode(instructions.before + _raw_text(conversation.turns))
    else:
        text = render_conversation(tokenizer, conversation.messages, instructions=instructions)
        ids = tokenizer.encode(text, special=False)
    if len(ids) >= context:
        raise GenerationError(
            f"The conversation has {len(ids)} tokens, but the model's context is {context} with the answer.",
            hint="/undo removes the last turn, /clear all of them.",
        )
    return tuple(ids)


def _raw_text(turns: Sequence[Turn]) -> str:
    return "\n".join(turn.user + turn.answer for turn in turns)
