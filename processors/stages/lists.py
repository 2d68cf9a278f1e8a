"""`Lists`: a list of numbers per slot as one tensor; `IdStage`: a stage with a list of ids per slot."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor
from processors.columns import in_slot
from processors.params import Params
from processors.rows import Rows

__all__ = ["IdStage", "Lists", "mask"]

P = TypeVar("P", bound=Params)


class Lists:
    """A list of numbers per slot, as a tensor [S, N] padded with the last number of each list.

    With this padding a scatter writes equal values to equal ids, and a sorted list stays sorted. An empty
    list is all zeros; `gather` returns which rows have a list.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._values = torch.zeros(8, 1, dtype=dtype, device=device)
        self._filled = torch.zeros(8, 1, dtype=torch.bool, device=device)
        self._sizes: dict[int, int] = {}
        self._numbers: dict[int, Tensor] = {}

    def write(self, slot: int, numbers: Sequence[float]) -> None:
        """Replace the slot's list."""
        self._reserve(slot, len(numbers))
        padded = torch.zeros(self._values.shape[1], dtype=self._values.dtype)
        own = self._numbers[slot] = torch.tensor(numbers, dtype=padded.dtype)
        if numbers:
            padded[: len(numbers)] = own
            padded[len(numbers) :] = numbers[-1]
        self._values[slot].copy_(padded, non_blocking=True)
        self._filled[slot].fill_(bool(numbers))
        self._sizes[slot] = len(numbers)

    def copy(self, source: int, target: int) -> None:
        """Copy the list of one slot to another."""
        self._reserve(target, 1)
        self._values[target] = self._values[source]
        self._filled[target] = self._filled[source]
        self._sizes[target], self._numbers[target] = self._sizes[source], self._numbers[source]

    def numbers(self, slot: int) -> Tensor:
        """Return the list of a slot [n] on the host; read-only."""
        return self._numbers[slot]

    def gather(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the lists of the rows [R, N], N the longest length, and whether each is non-empty [R, 1]."""
        size = max((self._sizes[slot] for slot in set(rows.host_slots)), default=1)
        return self._values[rows.slots, : max(size, 1)], self._filled[rows.slots]

    def are_empty(self, rows: Rows) -> bool:
        """Whether no row has a list, without device synchronisation."""
        return not any(self._sizes[slot] for slot in set(rows.host_slots))

    def _reserve(self, slot: int, size: int) -> None:
        self._values = in_slot(self._values, slot)
        self._filled = in_slot(self._filled, slot)
        missing = size - self._values.shape[1]
        if missing > 0:
            last = self._values[:, -1:].expand(-1, missing)
            self._values = torch.cat([self._values, last], 1)


class IdStage(Processor[P]):
    """A stage with a sorted list of token ids per slot."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.ids = Lists(torch.int64, env.device)

    @abstractmethod
    def listed(self, params: P, request: Admission) -> Iterable[int]:
        """Return the ids of a request. TokenError for an id outside the vocabulary."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        """Store the ids of the request."""
        super().admit(slot, params, request)
        self.ids.write(slot, sorted(set(self.listed(params, request))))

    def fork(self, source: int, target: int) -> None:
        """Copy the ids."""
        super().fork(source, target)
        self.ids.copy(source, target)


def mask(logits: Tensor, ids: Tensor, where: Tensor) -> Tensor:
    """Mask these ids [A, N] of the logits [A, V] in the rows where `where` [A, 1] is True."""
    return logits.scatter_(1, ids, logits.gather(1, ids).masked_fill_(where, -math.inf))
