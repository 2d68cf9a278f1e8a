"""`Feedback`: base of stages whose state follows the probabilities of drawn tokens: one number a slot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.catalog import Phase
from processors.columns import in_slot
from processors.params import Params
from processors.rows import Rows
from processors.upload import upload_ints

__all__ = ["Feedback"]

P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True, eq=False)
class _Applied:
    """Result of an apply: processed logits [A, V], and ln of each row's total mass [A] float64."""

    logits: Tensor
    total: Tensor

    def log_probability(self, at: Tensor, tokens: Tensor) -> Tensor:
        """Return ln p [N] float64 of tokens [N] in the rows `at` [N]."""
        return self.logits[at, tokens].double() - self.total[at]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Rows of a slot in an apply: index of the first row, number of drafts that each saw, and the drafts."""

    applied: _Applied
    first: int
    offsets: tuple[int, ...]
    drafts: tuple[int, ...]

    def chosen(self, tokens: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return pairs (row, token): each row whose drafts were accepted, with the token chosen in it."""
        pairs = zip(tokens, self.drafts, strict=False)
        same = next((place for place, (token, draft) in enumerate(pairs) if token != draft), len(self.drafts))
        return tuple(
            (row, tokens[offset])
            for row, offset in enumerate(self.offsets, self.first)
            if offset <= same and offset < len(tokens)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Committed:
    """Committed tokens of a slot, each with the row in which it was chosen."""

    slot: int
    applied: _Applied
    chosen: tuple[tuple[int, int], ...]


class Feedback(Processor[P]):
    """Base of a stage with one float64 number a slot, updated by the probability of each committed token.

    The number stays on the device. A row that sees drafts gets the number as it would be after them. Commits
    of all slots are processed together before the next apply. A token chosen in no row of the stage leaves
    the number unchanged.
    """

    phase = Phase.GATE
    keeps_faults = True
    remembers = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._numbers = torch.zeros(8, dtype=torch.float64, device=env.device)
        self._places: dict[int, _Place] = {}  # rows in the last apply, by slot
        self._committed: list[_Committed] = []  # commits that are not processed yet
        self._last = self._numbers[:0]  # numbers of the rows of the last apply

    @abstractmethod
    def first(self, params: P) -> float:
        """Return the initial number of a request."""

    @abstractmethod
    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return processed logits [A, V] as a new tensor, and ln of the mass that normalises p [A] float64.

        `logits` are not changed. `numbers` [A] float64: the number of each row.
        """

    @abstractmethod
    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return the numbers [N] of slots [N] after tokens with ln p [N]; -inf for impossible tokens."""

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]."""
        self._work_off()
        numbers = self._numbers[rows.slots]
        if rows.drafts.shape[1]:
            out, total = self._in_turn(logits, numbers, rows)
        else:
            out, total = self.process(logits, numbers, rows)
        self._last = numbers
        applied = _Applied(logits, total)
        for run in _runs(rows):
            offsets = tuple(len(rows.host_drafts[row]) for row in run)
            place = _Place(applied, run.start, offsets, rows.host_drafts[run[-1]])
            self._places[rows.host_slots[run.start]] = place
        return out

    @abstractmethod
    def note(self, number: float) -> str:
        """Return the note of an explanation for a row with this number."""

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return the note of each row, from the numbers of the last apply with these rows."""
        return [self.note(number) for number in self._last.tolist()] if len(self._last) == len(rows) else []

    def _in_turn(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Call `process` for the first row of each slot, then for the rows with one draft more, and so on."""
        out, total = torch.empty_like(logits), torch.empty_like(numbers)
        runs, seen = _runs(rows), rows.host_drafts
        for turn in range(max(map(len, runs))):
            index = [run[turn] for run in runs if turn < len(run)]
            at, these = upload_ints(index, logits.device), rows.select(index)
            if turn:
                drafts = upload_ints([seen[row][len(seen[row - 1])] for row in index], logits.device)
                before = _Applied(logits, total).log_probability(at - 1, drafts)
                numbers[at] = self.follow(numbers[at - 1], before, these.slots)
            out[at], total[at] = self.process(logits[at], numbers[at], these)
        return out, total

    def _work_off(self) -> None:
        """Update the numbers by the committed tokens."""
        groups: dict[int, list[_Committed]] = {}
        for one in self._committed:
            groups.setdefault(id(one.applied), []).append(one)
        self._committed.clear()
        for group in groups.values():
            for turn in range(max(len(one.chosen) for one in group)):
                cells = [(one.slot, *one.chosen[turn]) for one in group if turn < len(one.chosen)]
                slots, at, tokens = upload_ints([*chain(*cells)], self._numbers.device).view(-1, 3).unbind(1)
                found = group[0].applied.log_probability(at, tokens)
                self._numbers[slots] = self.follow(self._numbers[slots], found, slots)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Set the slot's number to its initial value."""
        self._work_off()
        super().admit(slot, params, request)
        self._numbers = in_slot(self._numbers, slot)
        self._numbers[slot].fill_(self.first(params))  # item assignment would synchronise
        self._places.pop(slot, None)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Store the tokens with the rows in which they were chosen, for the next update."""
        place = self._places.pop(slot, None) if tokens else None
        if place is not None:
            self._committed.append(_Committed(slot, place.applied, place.chosen(tokens)))

    def release(self, slot: int) -> None:
        """Forget the rows of the slot."""
        self._places.pop(slot, None)

    def fork(self, source: int, target: int) -> None:
        """Copy the number, and the rows of the last apply."""
        self._work_off()
        super().fork(source, target)
        self._numbers = in_slot(self._numbers, target)
        self._numbers[target] = self._numbers[source]
        self._places.pop(target, None)
        if source in self._places:
            self._places[target] = self._places[source]


def _runs(rows: Rows) -> list[range]:
    """Return the contiguous rows of each slot; each row sees one draft more than the row before."""
    starts = [
        row
        for row, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True))
        if not row or rows.host_slots[row - 1] != slot or len(rows.host_drafts[row - 1]) >= len(drafts)
    ]
    return [range(start, end) for start, end in pairwise([*starts, len(rows)])]
