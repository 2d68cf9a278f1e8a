"""`Feedback`: base of stages that follow the drawn tokens, with one number for each slot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor, in_slot
from processors.catalog import Phase
from processors.params import Params
from processors.rows import Rows
from processors.upload import upload_ints

__all__ = ["Feedback"]

P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True, eq=False)
class _Applied:
    """What an apply was given: logits [A, V], and the log of each row's total mass [A] float64."""

    logits: Tensor
    total: Tensor

    def log_probability(self, at: Tensor, tokens: Tensor) -> Tensor:
        """Return ln p [N] float64 of tokens [N] in the rows `at` [N]."""
        return self.logits[at, tokens].double() - self.total[at]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The rows of a slot in an apply: the index of the first, and the drafts that the last one saw."""

    applied: _Applied
    first: int
    drafts: tuple[int, ...]

    def known(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens have a row that saw those before them."""
        pairs = zip(tokens, self.drafts, strict=False)
        equal = next((place for place, (token, draft) in enumerate(pairs) if token != draft), None)
        return min(len(tokens), len(self.drafts) + 1) if equal is None else equal + 1


@dataclass(frozen=True, slots=True, eq=False)
class _Committed:
    """Tokens that became part of the output of a slot, and the rows in which they were chosen."""

    slot: int
    place: _Place
    tokens: tuple[int, ...]


class Feedback(Processor[P]):
    """A stage whose number, float64 for each slot, changes with the probability of each committed token.

    The number stays on the device. In a row that sees drafts it is what it would be after them. A commit is
    worked off before the next apply, for all slots together. Tokens without a row, as those of a text that
    is resumed, leave the number as it is.
    """

    phase = Phase.GATE
    keeps_faults = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._numbers = torch.zeros(8, dtype=torch.float64, device=env.device)
        self._places: dict[int, _Place] = {}  # of the last apply with the slot
        self._committed: list[_Committed] = []  # not worked off yet

    @abstractmethod
    def first(self, params: P) -> float:
        """Return the number with which a request begins."""

    @abstractmethod
    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return processed logits [A, V] as a new tensor, and ln of the total mass that counts [A] float64.

        `logits` are not changed. `numbers` [A] float64 are those of the rows.
        """

    @abstractmethod
    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return the numbers [N] after tokens with this ln p [N], for slots [N]; -inf: an impossible one."""

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        self._work_off()
        numbers = self._numbers[rows.slots]
        if rows.drafts.shape[1]:
            out, total = self._in_turn(logits, numbers, rows)
        else:
            out, total = self.process(logits, numbers, rows)
        applied = _Applied(logits, total)
        for first, last in _runs(rows):
            if not rows.host_drafts[first]:
                self._places[rows.host_slots[first]] = _Place(applied, first, rows.host_drafts[last])
        return out

    def _in_turn(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """As `process`, first for the first rows of all slots, then for those that see one draft more."""
        out, total = torch.empty_like(logits), torch.empty_like(numbers)
        runs = _runs(rows)
        for turn in range(1 + max(last - first for first, last in runs)):
            index = [first + turn for first, last in runs if first + turn <= last]
            at, these = upload_ints(index, logits.device), rows.select(index)
            if turn:
                drafts = upload_ints([drafts[-1] for drafts in these.host_drafts], logits.device)
                before = _Applied(logits, total).log_probability(at - 1, drafts)
                numbers[at] = self.follow(numbers[at - 1], before, these.slots)
            out[at], total[at] = self.process(logits[at], numbers[at], these)
        return out, total

    def _work_off(self) -> None:
        """Change the numbers by the tokens that were committed."""
        groups: dict[int, list[_Committed]] = {}
        for one in self._committed:
            groups.setdefault(id(one.place.applied), []).append(one)
        self._committed.clear()
        for group in groups.values():
            applied = group[0].place.applied
            for turn in range(max(len(one.tokens) for one in group)):
                some = [one for one in group if turn < len(one.tokens)]
                slots, at, tokens = (
                    upload_ints(values, self._numbers.device)
                    for values in zip(
                        *((one.slot, one.place.first + turn, one.tokens[turn]) for one in some), strict=True
                    )
                )
                found = applied.log_probability(at, tokens)
                self._numbers[slots] = self.follow(self._numbers[slots], found, slots)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Begin with the first number."""
        self._work_off()
        super().admit(slot, params, request)
        self._numbers = in_slot(self._numbers, slot)
        self._numbers[slot] = self.first(params)
        self._places.pop(slot, None)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Remember the tokens and the rows in which they were chosen."""
        place = self._places.pop(slot, None) if tokens else None
        if place is not None:
            self._committed.append(_Committed(slot, place, tuple(tokens[: place.known(tokens)])))

    def release(self, slot: int) -> None:
        """Forget the rows of the slot."""
        self._places.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy the number, and the rows in which the next tokens are chosen."""
        self._work_off()
        super().fork(source, target)
        self._numbers = in_slot(self._numbers, target)
        self._numbers[target] = self._numbers[source]
        self._places.pop(target, None)
        if source in self._places:
            self._places[target] = self._places[source]


def _runs(rows: Rows) -> list[tuple[int, int]]:
    """Return the first and the last row of each slot's rows; one that stands alone is both."""
    runs: list[tuple[int, int]] = []
    for index, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
        is_next = (
            bool(runs)
            and rows.host_slots[index - 1] == slot
            and len(rows.host_drafts[index - 1]) + 1 == len(drafts)
        )
        runs[-1:] = [(runs[-1][0], index)] if is_next else [*runs[-1:], (index, index)]
    return runs
