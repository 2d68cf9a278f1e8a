"""`ScriptStage`: a stage that writes text of its own, and `Script`, its state for a request."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self, TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env, Noise, Processor, Vocabulary
from processors.catalog import Phase
from processors.errors import TokenError
from processors.grammar.forced_tokens import tokens_behind
from processors.params import Params
from processors.rows import Rows
from processors.upload import upload

__all__ = ["Replay", "Script", "ScriptStage", "spelled"]

P = TypeVar("P", bound=Params)


class Script(ABC):
    """Immutable state of a stage's own text after some output tokens: which ids have to follow."""

    @property
    @abstractmethod
    def ahead(self) -> tuple[int, ...]:
        """Ids that have to come next; () if the model chooses."""

    @property
    def is_held(self) -> bool:
        """Whether end ids are masked while the model chooses."""
        return False

    @abstractmethod
    def step(self, token: int) -> Self:
        """Return the state after one more token."""


class Replay:
    """The script of a slot after its committed tokens, and after each of the drafts that rows see.

    `decide` replaces the state of a row by one that depends on its logits. The decision holds for later rows
    and for committed tokens, until the row is decided again.
    """

    def __init__(self, script: Script) -> None:
        self._drafts: tuple[int, ...] = ()
        self._plain, self._decided = [script], [script]

    def after(self, drafts: tuple[int, ...], *, is_plain: bool = False) -> Script:
        """Return the state after the drafts; `is_plain`: without a decision by the row's own logits."""
        if self._drafts[: len(drafts)] != drafts:
            shared = next(
                (n for n, (a, b) in enumerate(zip(self._drafts, drafts, strict=False)) if a != b),
                min(len(self._drafts), len(drafts)),
            )
            self._cut(shared)
            for token in drafts[shared:]:
                self._plain.append(self._decided[-1].step(token))
                self._decided.append(self._plain[-1])
            self._drafts = drafts
        return (self._plain if is_plain else self._decided)[len(drafts)]

    def decide(self, drafts: tuple[int, ...], script: Script) -> None:
        """Set the state of the row that sees these drafts."""
        if self.after(drafts) is not script:
            self._cut(len(drafts))
            self._decided[-1] = script

    def commit(self, tokens: Sequence[int]) -> None:
        """Advance by tokens that were appended to the output."""
        script = self.after(tuple(tokens), is_plain=True) if tokens else None
        if script is not None:
            self._drafts, self._plain, self._decided = (), [script], [script]

    def fork(self) -> Replay:
        """Return an independent copy."""
        other = Replay(self._plain[0])
        other._drafts, other._plain, other._decided = self._drafts, [*self._plain], [*self._decided]
        return other

    def _cut(self, count: int) -> None:
        self._drafts = self._drafts[:count]
        del self._plain[count + 1 :], self._decided[count + 1 :]


class ScriptStage(Processor[P]):
    """Masks all ids but the next id of a request's script. If that id is masked already, no token is left.

    Ids written by the stage count for penalties like any others.
    """

    phase = Phase.CONSTRAIN
    remembers = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._replays: dict[int, Replay] = {}
        self._ends: dict[int, tuple[int, ...]] = {}

    @abstractmethod
    def script(self, params: P, request: Admission) -> Script:
        """Return the state before the first output token."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Begin the script of a request."""
        super().admit(slot, params, request)
        self._replays[slot] = Replay(self.script(params, request))
        ends = {*self.env.eos_ids, *request.stop_ids}
        self._ends[slot] = tuple(sorted(token for token in ends if 0 <= token < self.env.vocab_size))

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the script."""
        self._replays[slot].commit(tokens)

    def release(self, slot: int) -> None:
        """Drop the script."""
        self._replays.pop(slot, None)
        self._ends.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy the script."""
        super().fork(source, target)
        self._replays[target] = self._replays[source].fork()
        self._ends[target] = self._ends[source]

    def predicted(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Return the ids that have to come next, with probability 1."""
        return tuple((token, 1.0) for token in self._replays[slot].after(()).ahead)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Rows where the model chooses are unchanged, or have the end ids masked."""
        self._decide(logits, rows)
        only, held = dict[int, int](), dict[int, tuple[int, ...]]()
        for place, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            script = self._replays[slot].after(drafts)
            if ahead := script.ahead:
                only[place] = ahead[0]
            elif script.is_held and self._ends[slot]:
                held[place] = self._ends[slot]
        if held:
            pairs = [(place, token) for place, ends in held.items() for token in ends]
            at = upload(pairs, logits.device, torch.int64)
            logits.index_put_((at[:, 0], at[:, 1]), logits.new_full((), -math.inf))  # a number is waited for
        if only:
            at = upload([*only.items()], logits.device, torch.int64)
            kept = logits[at[:, 0], at[:, 1]]
            logits.index_fill_(0, at[:, 0], -math.inf)
            logits[at[:, 0], at[:, 1]] = kept
        return logits

    def idle(self, rows: Rows) -> list[str]:
        """Return the reason: the stage's text does not come next."""
        return ["the model chooses here"] * len(rows)

    def _decide(self, logits: Tensor, rows: Rows) -> None:
        """Let scripts decide by the logits of their rows; by default they do not."""


def spelled(text: str, vocabulary: Vocabulary | None, what: str) -> tuple[int, ...]:
    """Return the ids of a text inside an output, by the tokenizer. TokenError without a tokenizer.

    A space that the tokenizer puts before every text is not added inside an output.
    """
    if vocabulary is None:
        raise TokenError(f"{what} works on texts, but there is no tokenizer. Give token ids.")
    for before in ("", "\n", "a"):
        if ids := tokens_behind(vocabulary, before, text):
            return ids
    if not (ids := tuple(vocabulary.encode(text, special=False))):  # special tokens have no bytes
        raise TokenError(f"The tokenizer has no tokens for the text {text[:60]!r} of {what}.")
    return ids
