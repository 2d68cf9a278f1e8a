"""KV lanes: how many tokens each holds, the checks of a step plan and runners over them; buffers of keys and
values, one row per lane, grown on demand; the formats that keys and values are stored in; and steps of one
token a row in static shapes, which graphs can replay.
"""

from __future__ import annotations

import heapq
import math
import mmap
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.files.model_card import STEP
from gencli.models.model_runner import Lanes, ModelSpec
from gencli.models.rope import factors_of
from processors.graphs import Graphs, bucket_of, upload_into

if TYPE_CHECKING:
    from gencli.models.kv.lane_batches import ForwardBatch


class ContractError(AssertionError):
    """The caller broke the runner's contract: a bug in gencli, never a fault of its input."""


class LaneLengths:
    """Length in tokens of each lane; rejects feeds that do not match.

    `num_ids` is the number of token ids of the model, `context` the maximum number of tokens in a lane.
    """

    def __init__(self, *, max_lanes: int, context: int, num_ids: int) -> None:
        self._lengths, self.context, self._num_ids = [0] * max_lanes, context, num_ids

    def like(self) -> LaneLengths:
        """Return lengths of as many empty lanes, with the same limits."""
        return LaneLengths(max_lanes=len(self), context=self.context, num_ids=self._num_ids)

    def __getitem__(self, lane: int) -> int:
        self._require_lane(lane)
        return self._lengths[lane]

    def __len__(self) -> int:
        return len(self._lengths)

    def held(self) -> list[tuple[int, int]]:
        """Return (lane, tokens) of every lane that is not empty."""
        return [(lane, length) for lane, length in enumerate(self._lengths) if length]

    def check(self, plan: StepPlan) -> None:
        """Raise ContractError for a plan that does not fit the lanes, ModelError for an unknown token id."""
        if not plan.feeds:
            raise ContractError("a plan needs at least one feed")
        lengths, num_lanes, fed = self._lengths, len(self._lengths), set[int]()
        for feed in plan.feeds:
            lane, start, tokens, num_logits, _, _, _ = feed
            count = len(tokens)
            if lane in fed:
                raise ContractError(f"lane {lane} is fed twice in one step")
            fed.add(lane)
            if not (
                0 <= lane < num_lanes
                and start == lengths[lane]
                and 0 <= num_logits <= count > 0
                and start + count <= self.context
                and min(tokens) >= 0
                and max(tokens) < self._num_ids
            ):
                self._refuse(feed)

    def advance(self, plan: StepPlan) -> None:
        for feed in plan.feeds:
            self._lengths[feed.lane] = feed.start + len(feed.tokens)

    def check_truncate(self, lane: int, length: int) -> None:
        """Raise ContractError unless the lane holds at least `length` tokens."""
        held = self[lane]
        self._require(0 <= length <= held, f"lane {lane} holds {held} tokens and cannot keep {length}")

    def truncate(self, lane: int, length: int) -> None:
        self.check_truncate(lane, length)
        self._lengths[lane] = length

    def check_fork(self, source: int, target: int) -> None:
        """Raise ContractError unless these are two different lanes."""
        self._require(source != target, f"lane {source} cannot be forked onto itself")
        for lane in (source, target):
            self._require_lane(lane)

    def fork(self, source: int, target: int) -> None:
        self.check_fork(source, target)
        self._lengths[target] = self[source]

    def release(self, lane: int) -> None:
        """Empty the lane; releasing an empty lane is allowed."""
        self.truncate(lane, 0)

    def _refuse(self, feed: Feed) -> None:
        held, count = self[feed.lane], len(feed.tokens)
        self._require(count > 0, f"lane {feed.lane} is fed no token")
        self._require(
            feed.start == held, f"lane {feed.lane} holds {held} tokens, the feed starts at {feed.start}"
        )
        self._require(
            0 <= feed.num_logits <= count,
            f"lane {feed.lane}: {feed.num_logits} rows wanted of {count} fed tokens",
        )
        self._require(
            held + count <= self.context,
            f"lane {feed.lane}: {held} + {count} tokens exceed the context of {self.context}",
        )
        unknown = low if (low := min(feed.tokens)) < 0 else max(feed.tokens)
        raise ModelError(
            f"Token id {unknown} is unknown to the model, which reads 0..{self._num_ids - 1}",
            hint="Does the tokenizer belong to this model?",
        )

    def _require_lane(self, lane: int) -> None:
        self._require(
            0 <= lane < len(self._lengths), f"lane {lane} is not one of 0..{len(self._lengths) - 1}"
        )

    @staticmethod
    def _require(condition: bool, message: str) -> None:
        if not condition:
            raise ContractError(message)


def cells_of(feeds: Iterable[Feed]) -> tuple[list[int], list[int]]:
    """Return the lane of every fed token, in feed order, and its place in the lane: its position, but in a
    tree.
    """
    lanes, positions = list[int](), list[int]()
    for feed in feeds:
        lanes += [feed.lane] * len(feed.tokens)
        positions += range(feed.start, feed.start + len(feed.tokens))
    return lanes, positions


def wanted_of(feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens whose logits are needed."""
    wanted: list[int] = []
    end = 0
    for feed in feeds:
        end += len(feed.tokens)
        wanted += range(end - feed.num_logits, end)
    return wanted


def fed_to(lanes: Collection[int], feeds: Iterable[Feed]) -> list[int]:
    """Return the indices, among all fed tokens in feed order, of the tokens fed to these lanes."""
    owners = [feed.lane for feed in feeds for _ in feed.tokens]
    return [index for index, lane in enumerate(owners) if lane in lanes]


def room_for(feeds: Iterable[Feed]) -> tuple[int, int]:
    """Return the size of a cache, (lanes, tokens), that holds all feeds of a step."""
    feeds = tuple(feeds)
    return max(feed.lane for feed in feeds) + 1, max(feed.start + len(feed.tokens) for feed in feeds)


class LaneRunner(ABC):
    """ModelRunner over lanes. `lengths` are those of the lanes."""

    def __init__(self, spec: ModelSpec, lanes: Lanes, lengths: LaneLengths) -> None:
        self._spec, self._lanes, self._lengths = spec, lanes, lengths

    @abstractmethod
    def first_layers(self, count: int | None = None, *, max_lanes: int) -> LaneRunner:
        """Return a runner of the first `count` layers (default: half of them), sharing the weights.

        Raises ModelError for a model without a plain row of layers, or a count outside 1..num_layers - 1.
        """

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def forward(self, plan: StepPlan) -> Tensor:
        """Feed every lane of the plan; return the wanted logits [plan.num_rows, V] in feed order.

        After an exception the lanes of the plan must be released before they are fed again.
        """
        self._lengths.check(plan)
        with torch.inference_mode():
            logits = self._lanes.forward(plan.feeds)
        self._lengths.advance(plan)
        # An inference tensor refuses in-place edits outside inference mode; a copy does not.
        return logits if torch.is_inference_mode_enabled() else logits.clone()

    def forward_ahead(self, plan: StepPlan, ids: Tensor) -> Tensor | None:
        """As `forward`, with the tokens `ids` [N] of the device (see AheadRunner).

        Its lanes say with `holds` whether their buffers hold the feeds without growing, and take `ids` too.
        """
        lanes: Any = self._lanes
        self._lengths.check(plan)
        if not lanes.holds(plan.feeds):
            return None
        with torch.inference_mode():
            logits: Tensor = lanes.forward(plan.feeds, ids=ids)
        self._lengths.advance(plan)
        return logits

    def truncate(self, lane: int, length: int) -> None:
        """Truncate the lane. Raises ModelError if it gets shorter and the model cannot roll back."""
        self._lengths.check_truncate(lane, length)
        if length == self._lengths[lane]:
            return
        if not self._lanes.can_rollback:
            raise ModelError(
                f"{self._spec.name} cannot forget tokens it has read: its layers keep a running state",
                hint="Run it without drafts",
            )
        with torch.inference_mode():
            self._lanes.truncate(lane, length)
        self._lengths.truncate(lane, length)

    def compact(self, lane: int, start: int, nodes: Sequence[int]) -> None:
        """Keep a path of the tree behind token `start` (see TreeRunner), which the lanes can take."""
        lanes: Any = self._lanes
        self._lengths.check_truncate(lane, start + 1 + max(nodes, default=-1) + 1)
        moved = [(node, place) for place, node in enumerate(nodes) if node != place]
        if moved:
            sources, targets = ([start + 1 + index for index in side] for side in zip(*moved, strict=True))
            with torch.inference_mode():
                lanes.move(lane, sources, targets)
        self.truncate(lane, start + 1 + len(nodes))

    def fork(self, source: int, target: int) -> None:
        self._lengths.check_fork(source, target)
        with torch.inference_mode():
            self._lanes.release(target)
            self._lanes.fork(source, target)
        self._lengths.fork(source, target)

    def release(self, lane: int) -> None:
        with torch.inference_mode():
            self._lanes.release(lane)
        self._lengths.release(lane)

    def free_cache(self) -> None:
        self._lanes.free_cache()
        if self._spec.device.type == "cuda":
            torch.cuda.empty_cache()


_LEAST_MAPPED = 2**20  # bytes


def _zeros(shape: tuple[int, int, int, int], like: Tensor) -> Tensor:
    """Return zeros [rows, heads, capacity, D], with the dtype and device of `like`.

    On CUDA a token's heads are adjacent in memory, as kernels for packed texts read them. On a CPU the zeros
    lie in a mapping of their own, which goes back to the system when a larger buffer replaces them. The
    allocator would keep it: the holes of growing buffers took a tenth of the memory of a run.
    """
    if like.is_cuda:
        rows, heads, capacity, width = shape
        return like.new_zeros(rows, capacity, heads, width).transpose(1, 2)
    count = math.prod(shape)
    if like.device.type != "cpu" or count * like.dtype.itemsize < _LEAST_MAPPED:
        return like.new_zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, count * like.dtype.itemsize), dtype=like.dtype).view(shape)


class LaneBuffer:
    """Keys or values of one layer, [rows, heads, capacity, head_dim], grown on demand.

    The attention mask hides entries beyond a lane's length. They must be finite, because 0 * inf is NaN.
    Whoever writes may order the numbers of each `tile` tokens as they like: tokens are copied and zeroed in
    whole tiles. `data` is the buffer as it is now, empty before the first write.
    """

    def __init__(self, store: LaneStore, *, tile: int = 1) -> None:
        self._store, self._tile = store, tile
        self.data = torch.empty(0, 0, 0, 0)

    def reserve(self, num_rows: int, length: int, *, like: Tensor) -> Tensor:
        """Return the buffer after growing it to hold `length` tokens in `num_rows` rows.

        A new buffer has the heads, the head_dim, the dtype and the device of `like` [B, H, Q, D].
        """
        if not self.holds(num_rows, length):
            self._grow(num_rows, length, like)
        return self.data

    def holds(self, num_rows: int, length: int) -> bool:
        return self.data.shape[0] >= num_rows and self.data.shape[2] >= length

    def write(self, batch: ForwardBatch, states: Tensor) -> Tensor:
        """Store `states` [B, H, Q, D] of the batch; return the contents of its lanes, [B, H, K, D]."""
        data = self.reserve(*batch.room, like=states)
        if batch.target is None:  # adjacent lanes of equal length: one slice
            held = data[batch.lanes, :, : batch.kv_length]
            held[:, :, batch.start :] = states
            return held
        fed = states.transpose(1, 2)  # [B, Q, H, D]
        data.transpose(1, 2)[batch.target] = fed.flatten(0, 1) if batch.source is None else fed[batch.source]
        return data[batch.lanes, :, : batch.kv_length]

    def fork(self, source: int, target: int, length: int) -> None:
        data = self._grow(target + 1, length, self.data) if target >= self.data.shape[0] else self.data
        tokens = self._whole(length)
        data[target, :, :tokens] = data[source, :, :tokens]

    def wipe(self, row: int, length: int) -> None:
        """Zero the first `length` tokens of the row, so that no data reaches the next request."""
        if row < self.data.shape[0]:
            self.data[row, :, : self._whole(length)] = 0

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def free_cache(self) -> None:
        self.data = torch.empty(0, 0, 0, 0)

    def _grow(self, num_rows: int, length: int, like: Tensor) -> Tensor:
        """Grow to `num_rows` rows of `length` tokens, and copy the tokens held.

        The number of rows doubles at least; the capacity is a multiple of STEP tokens, in whole
        tiles.
        """
        old_rows, _, capacity, _ = self.data.shape
        if num_rows > old_rows:
            num_rows = min(max(num_rows, 2 * old_rows), self._store.num_rows)
        capacity = max(self._whole(-(-length // STEP) * STEP), capacity)
        data = _zeros((max(num_rows, old_rows), like.shape[1], capacity, like.shape[3]), like)
        for row, held in self._store.held():
            tokens = self._whole(held)
            data[row, :, :tokens] = self.data[row, :, :tokens]
        self.data = data
        return data

    def _whole(self, length: int) -> int:
        return -(-length // self._tile) * self._tile


class LaneStore:
    """The rows of lanes in the buffers that hold them, of which there are `spare` more than lanes.

    A lane gets the lowest free row at its first write, and the row is free again when the lane is emptied. A
    guided sequence and its unconditional sequence, whose lanes are `max_batch` apart, so get adjacent rows.
    """

    def __init__(self, lengths: LaneLengths, *, spare: int = 0) -> None:
        self.buffers: Sequence[LaneBuffer] = ()
        self.num_rows = spare + len(lengths)
        self._lengths = lengths
        self._free = list(range(len(lengths)))
        self._rows = defaultdict[int, int](partial(heapq.heappop, self._free))  # by lane
        self._written = [0] * self.num_rows  # most tokens written to each row since it was wiped

    @property
    def spare(self) -> int:
        """The lowest row that no lane has; of a row more than lanes there is one always."""
        return self._free[0] if self._free else len(self._lengths)

    def held(self) -> list[tuple[int, int]]:
        """Return (row, tokens) of every lane that is not empty and has a row."""
        return [(self._rows[lane], length) for lane, length in self._lengths.held() if lane in self._rows]

    def seat(self, feeds: tuple[Feed, ...]) -> tuple[Feed, ...]:
        """Return the feeds with each lane replaced by its buffer row.

        Record how many tokens each row may hold, rejected drafts and failed passes included.
        """
        seated = list[Feed]()
        for feed in feeds:
            row = self._rows[feed.lane]
            self._written[row] = max(self._written[row], feed.start + len(feed.tokens))
            seated.append(feed._replace(lane=row))
        return tuple(seated)

    def holds(self, num_rows: int, length: int) -> bool:
        return all(buffer.holds(num_rows, length) for buffer in self.buffers)

    def reserve(self, num_rows: int, length: int) -> None:
        """Grow the buffers that were written to."""
        for buffer in self.buffers:
            if buffer.nbytes:
                buffer.reserve(num_rows, length, like=buffer.data)

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to another; no-op for an empty source."""
        if length := self._lengths[source]:
            start, end = self._rows[source], self._rows[target]
            self._written[end] = length
            for buffer in self.buffers:
                buffer.fork(start, end, length)

    def row(self, lane: int) -> int:
        """Return the row of a lane that was fed."""
        return self._rows[lane]

    def wipe(self, lane: int) -> None:
        """Zero everything written to the lane, and free its row."""
        row = self._rows.pop(lane, None)
        if row is None:
            return
        for buffer in self.buffers:
            buffer.wipe(row, self._written[row])
        self._written[row] = 0
        heapq.heappush(self._free, row)

    def free_cache(self) -> None:
        """Free all buffers; every lane must be empty."""
        for buffer in self.buffers:
            buffer.free_cache()


SCALE_BYTES = 4
_LARGEST = {kind: torch.finfo(kind).max for kind in (torch.float16, torch.float8_e4m3fn)}
_TOP = 127.0  # the largest code of int8


def stored_width(dtype: torch.dtype, head_dim: int) -> int:
    """Return how many numbers of `dtype` the keys or values of a token and head take."""
    return head_dim + (SCALE_BYTES if dtype == torch.int8 else 0)


def as_stored(held: Tensor, dtype: torch.dtype) -> Tensor:
    """Return keys and values [..., D] as they are stored in `dtype`, [..., stored_width].

    Values beyond the range of a format without scales become its largest.
    """
    if held.dtype == dtype:
        return held
    if dtype == torch.int8:
        wide = held.float()
        scales = wide.abs().amax(-1, True) / _TOP
        codes = (wide / torch.where(scales == 0, 1.0, scales)).round_().to(torch.int8)
        return torch.cat([codes, scales.view(torch.int8)], -1)
    if dtype in _LARGEST:
        held = held.clamp(-_LARGEST[dtype], _LARGEST[dtype])
    return held.to(dtype)


def widened(stored: Tensor, dtype: torch.dtype) -> Tensor:
    """Return keys and values [..., D] in `dtype`, as `as_stored` has stored them."""
    if stored.dtype != torch.int8:
        return stored.to(dtype)
    codes, scales = stored[..., :-SCALE_BYTES], stored[..., -SCALE_BYTES:].view(torch.float32)
    return (codes * scales).to(dtype)


SPARE_ROWS = 1  # more than lanes, so that the rows that fill a bucket always have one to write to
MOST_ALONE = 16  # tokens of a feed that are computed one by one, with the bits of decode steps

_PARTS = 4  # capacities between two powers of two
# Tokens of a static step with drafts. With more of them graphs are predicted to save less than 9 % of a step
# of 1B on an H100, and nothing of larger models. And a graph keeps the memory of its attention, which grows
# with tokens and keys: 134 MB for 128 tokens of 8B with 8,192 keys.
_MAX_DRAFTED = 128


def is_decode_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token with wanted logits."""
    return all(len(feed.tokens) == 1 and feed.num_logits == 1 and not feed.parents for feed in feeds)


def is_drafted_step(feeds: Sequence[Feed]) -> bool:
    """Return whether each feed is one token or one with draft tokens, and the step short enough to be static.

    Of one token of a feed, not a prompt's, no logits may be wanted: a draft model lacks two tokens of a text
    that took all of its drafts.
    """
    is_short = all(
        0 < feed.num_logits <= len(feed.tokens) <= feed.num_logits + (feed.start > 0)
        and len(feed.tokens) <= MOST_ALONE
        and not feed.num_scored
        and not feed.parents
        for feed in feeds
    )
    return is_short and sum(len(feed.tokens) for feed in feeds) <= _MAX_DRAFTED


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


def step_rows(feeds: Sequence[Feed], spare: int, *, max_rows: int = 0) -> StepRows:
    """Return the rows of a static step; `feeds` have buffer rows as lanes, and `spare` is one without a lane.

    With `max_rows`, the number of buffer rows, the rows are in place unless that leaves more rows idle
    than are fed: keys and values are then read where they are. That takes feeds of one token.
    """
    num_fed, top = sum([len(feed.tokens) for feed in feeds]), max(feed.lane for feed in feeds) + 1
    in_place = top <= min(2 * num_fed, max_rows)
    count = min(bucket_of(top), max_rows) if in_place else bucket_of(num_fed)
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
        output = self._graphs.run((rows.count, rows.in_place, end), lambda: run(inputs))
        assert isinstance(output, Tensor)
        num_wanted = sum([feed.num_logits for feed in feeds])
        if rows.in_place or num_wanted < len(rows.places):
            return output.index_select(0, held[-2, :num_wanted])
        logits = output[:num_wanted]
        return logits.clone() if self._graphs.records else logits  # the next replay overwrites them

    def free(self) -> None:
        self._graphs.clear()
        self._placed = ()

    def _fill(self, feeds: Sequence[Feed], rows: StepRows, ids: Tensor | None) -> Tensor:
        """Write the inputs of the feeds into the static tensor of their bucket, in one copy from the host."""
        lanes, positions = cells_of(feeds)
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
