"""Steps of one token a row, in shapes that depend on buckets only, so that graphs can replay them.

A feed with draft tokens has a row for each of its tokens. A pass may take it so if each token finds its keys
by its own buffer row and position, and if the keys of all tokens are written before any is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_

import torch
from torch import Tensor

from gencli.core.step import Feed, cells_of, wanted_of
from gencli.models.kv.lengths import STEP
from gencli.models.longrope import factors_of
from processors.graphs import Graphs, bucket_of
from processors.upload import upload_into

__all__ = [
    "MOST_ALONE",
    "SPARE_ROWS",
    "StaticInputs",
    "StaticSteps",
    "StepRows",
    "is_decode_step",
    "is_drafted_step",
    "roomy",
    "step_rows",
]

SPARE_ROWS = 1  # more than lanes, so that the rows that fill a bucket always have one to write to
MOST_ALONE = 16  # tokens of a feed that are computed one by one, with the bits of decode steps

_PARTS = 4  # capacities between two powers of two
# Tokens of a static step with drafts. With more of them graphs are predicted to save less than 9 % of a step
# of 1B on an H100, and nothing of larger models. And a graph keeps the memory of its attention, which grows
# with tokens and keys: 134 MB for 128 tokens of 8B with 8,192 keys.
_MOST_DRAFTED = 128


def is_decode_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token with wanted logits."""
    return all(len(feed.tokens) == 1 and feed.num_logits == 1 for feed in feeds)


def is_drafted_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token or one with draft tokens, and the step short enough to be static.

    Of one token of a feed, not a prompt's, no logits may be wanted: a draft model lacks two tokens of a text
    that took all of its drafts.
    """
    is_short = all(
        0 < feed.num_logits <= len(feed.tokens) <= feed.num_logits + (feed.start > 0)
        and len(feed.tokens) <= MOST_ALONE
        and not feed.num_scored
        for feed in feeds
    )
    return is_short and sum(len(feed.tokens) for feed in feeds) <= _MOST_DRAFTED


def roomy(length: int, context: int) -> int:
    """Return the capacity (tokens) of buffers for `length` tokens: some room to grow, a quarter at most.

    Each growth moves the buffers, after which steps are recorded anew.
    """
    step = max(STEP, (1 << (length - 1).bit_length()) // (2 * _PARTS))
    return min(_up(length, step), _up(context, STEP))


@dataclass(frozen=True, slots=True)
class StepRows:
    """The `count` rows of a step: fed token i is in row `places[i]`. The others write to buffer row `spare`.

    `num_held` is how many rows the buffers need. With `in_place` a row has the number of its buffer row.
    """

    count: int
    places: Sequence[int]
    spare: int
    num_held: int
    in_place: bool = False

    def spread(self, values: Sequence[int], other: int = 0) -> Sequence[int]:
        """Return the values of the fed tokens by row, `other` in the rows that have none."""
        if not self.in_place:
            return [*values, *[other] * (self.count - len(values))]
        by_row = dict(zip(self.places, values, strict=True))
        return [by_row.get(number, other) for number in range(self.count)]


def step_rows(feeds: Sequence[Feed], spare: int, *, most: int = 0) -> StepRows:
    """Return the rows of a static step; `feeds` have buffer rows as lanes, and `spare` is one without a lane.

    With `most`, the maximum number of buffer rows, the rows are in place unless that leaves more rows idle
    than are fed: keys and values are then read where they are. That takes feeds of one token.
    """
    num_fed, top = sum([len(feed.tokens) for feed in feeds]), max(feed.lane for feed in feeds) + 1
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
    """Runs steps of one token a row. `graphs` record them by the bucket of rows and that of keys.

    The inputs of a bucket are one static tensor [4 or 5, rows]: buffer rows, positions, with `switches` of a
    long rope the numbers of the rotary factors, the rows whose logits are wanted, ids. Without a graph the
    same shapes are launched one by one.
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
        """Return the wanted logits [R, V] of the feeds, a new tensor.

        `run` gives those of static inputs, [rows, V]; `placed` are the tensors that it reads or writes
        beside them, of `capacity` tokens. `ids` [R] on the device replace the tokens, of which all are
        wanted then.
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
        num_wanted = sum([feed.num_logits for feed in feeds])
        if rows.in_place or num_wanted < len(rows.places):
            return made.index_select(0, held[-2, :num_wanted])
        logits = made[:num_wanted]
        return logits.clone() if self._graphs.records else logits  # the next replay overwrites them

    def free(self) -> None:
        """Drop the graphs, whose buffers are freed."""
        self._graphs.clear()
        self._placed = ()

    def _fill(self, feeds: Sequence[Feed], rows: StepRows, ids: Tensor | None) -> Tensor:
        """Write the inputs of the feeds into the static tensor of their bucket, in one copy from the host."""
        lanes, positions = zip(*cells_of(feeds), strict=True)
        columns = [rows.spread(lanes, rows.spare), rows.spread(positions)]
        if self._switches:
            columns.append(
                rows.spread([factors_of(feed, self._switches) for feed in feeds for _ in feed.tokens])
            )
        wanted = [rows.places[index] for index in wanted_of(feeds)]
        columns.append([*wanted, *[0] * (rows.count - len(wanted))])
        height = len(columns) + 1
        if ids is None:
            columns.append(rows.spread([token for feed in feeds for token in feed.tokens]))
        key = rows.count, rows.in_place
        if key not in self._inputs:
            self._inputs[key] = torch.zeros(height, rows.count, dtype=torch.int64, device=self._device)
        inputs = self._inputs[key]
        upload_into([*chain(*columns)], inputs.view(-1)[: len(columns) * rows.count])
        if ids is not None and rows.in_place:
            inputs[-1].index_copy_(0, inputs[-2, : len(ids)], ids)
        elif ids is not None:
            inputs[-1, : len(ids)].copy_(ids)
        return inputs


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
