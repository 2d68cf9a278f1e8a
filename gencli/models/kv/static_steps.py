"""Steps of one token a row, in shapes that depend on buckets only, so that graphs can replay them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.models.kv.lengths import STEP
from gencli.models.longrope import factors_of
from processors.graphs import Graphs, bucket_of
from processors.upload import upload_into

__all__ = ["SPARE_ROWS", "StaticInputs", "StaticSteps", "StepRows", "is_decode_step", "roomy", "step_rows"]

SPARE_ROWS = 1  # more than lanes, so that the rows that fill a bucket always have one to write to

_PARTS = 4  # capacities between two powers of two


def is_decode_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token with wanted logits."""
    return all(len(feed.tokens) == 1 and feed.num_logits == 1 for feed in feeds)


def roomy(length: int, context: int) -> int:
    """Return the capacity (tokens) of buffers for `length` tokens: some room to grow, a quarter at most.

    Each growth moves the buffers, after which steps are recorded anew.
    """
    step = max(STEP, (1 << (length - 1).bit_length()) // (2 * _PARTS))
    return min(_up(length, step), _up(context, STEP))


@dataclass(frozen=True, slots=True)
class StepRows:
    """The `count` rows of a step: feed i is in row `places[i]`. The others write to the buffer row `spare`.

    `num_held` is how many rows the buffers need. With `in_place` a row has the number of its buffer row.
    """

    count: int
    places: Sequence[int]
    spare: int
    num_held: int
    in_place: bool = False


def step_rows(feeds: Sequence[Feed], spare: int, *, most: int = 0) -> StepRows:
    """Return the rows of a decode step; `feeds` have buffer rows as lanes, and `spare` is one without a lane.

    With `most`, the maximum number of buffer rows, the rows are in place unless that leaves more rows idle
    than are fed: keys and values are then read where they are.
    """
    num_fed, top = len(feeds), max(feed.lane for feed in feeds) + 1
    in_place = top <= min(2 * num_fed, most)
    count = min(bucket_of(top), most) if in_place else bucket_of(num_fed)
    places = [feed.lane for feed in feeds] if in_place else range(num_fed)
    num_held = max(top, count if in_place else 0, spare + 1 if count > num_fed else 0)
    return StepRows(count, places, spare, num_held, in_place)


@dataclass(frozen=True, slots=True, eq=False)
class StaticInputs:
    """Static tensors of a step [rows]: buffer rows to write to, positions, ids, numbers of rotary factors.

    The keys that are looked at are those before `end`.
    """

    rows: Tensor
    positions: Tensor
    ids: Tensor
    factors: Tensor | None
    end: int


class StaticSteps:
    """Runs steps of one token a feed. `graphs` record them by the bucket of rows and that of keys.

    The inputs of a bucket are one static tensor [3 to 5, rows]: buffer rows, positions, with `switches` of a
    long rope the numbers of the rotary factors, in place the rows of the feeds, ids. Without a graph the same
    shapes are launched one by one.
    """

    def __init__(self, graphs: Graphs, device: torch.device, switches: tuple[int, ...] = ()) -> None:
        self._graphs, self._device, self._switches = graphs, device, switches
        self._inputs: dict[tuple[int, bool], Tensor] = {}  # by the number of rows, and whether in place
        self._placed: tuple[Tensor, ...] = ()  # tensors whose addresses are in the graphs

    def __call__(
        self,
        feeds: Sequence[Feed],
        rows: StepRows,
        placed: tuple[Tensor, ...],
        capacity: int,
        run: Callable[[StaticInputs], Tensor],
        ids: Tensor | None = None,
    ) -> Tensor:
        """Return the logits [R, V] of the feeds, a new tensor.

        `run` gives those of static inputs, [rows, V]; `placed` are the tensors that it reads or writes
        beside them, of `capacity` tokens. `ids` [R] on the device replace the tokens.
        """
        if len(placed) != len(self._placed) or not all(map(is_, placed, self._placed)):
            self._graphs.clear()
            self._placed = placed
        held = self._fill(feeds, rows, ids)
        end = min(max(STEP, 1 << (max(feed.end for feed in feeds) - 1).bit_length()), capacity)
        factors = held[2] if self._switches else None
        inputs = StaticInputs(held[0], held[1], held[-1], factors, end)
        made = self._graphs.run((rows.count, rows.in_place, end), lambda: run(inputs))
        assert isinstance(made, Tensor)
        if rows.in_place:
            return made.index_select(0, held[-2, : len(feeds)])
        logits = made[: len(feeds)]
        return logits.clone() if self._graphs.records else logits  # the next replay overwrites them

    def free(self) -> None:
        """Drop the graphs, whose buffers are freed."""
        self._graphs.clear()
        self._placed = ()

    def _fill(self, feeds: Sequence[Feed], rows: StepRows, ids: Tensor | None) -> Tensor:
        """Write the inputs of the feeds into the static tensor of their bucket, in one copy from the host."""

        def row(values: Sequence[int], other: int = 0) -> Sequence[int]:
            if not rows.in_place:
                return [*values, *[other] * (rows.count - len(values))]
            by_row = dict(zip(rows.places, values, strict=True))
            return [by_row.get(number, other) for number in range(rows.count)]

        columns = [row([feed.lane for feed in feeds], rows.spare), row([feed.start for feed in feeds])]
        if self._switches:
            columns.append(row([factors_of(feed, self._switches) for feed in feeds]))
        if rows.in_place:
            columns.append([*rows.places, *[0] * (rows.count - len(feeds))])
        height = len(columns) + 1
        if ids is None:
            columns.append(row([feed.tokens[0] for feed in feeds]))
        key = rows.count, rows.in_place
        if key not in self._inputs:
            self._inputs[key] = torch.zeros(height, rows.count, dtype=torch.int64, device=self._device)
        inputs = self._inputs[key]
        upload_into([*chain(*columns)], inputs.view(-1)[: len(columns) * rows.count])
        if ids is not None and rows.in_place:
            inputs[-1].index_copy_(0, inputs[-2, : len(feeds)], ids)
        elif ids is not None:
            inputs[-1, : len(feeds)].copy_(ids)
        return inputs


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
