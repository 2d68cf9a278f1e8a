"""Drafts of a trained head, and what it holds of each slot: tokens, features, keys and values of its entries.

Entry i of a lane pairs the feature of token i with token i + 1. True features come from the target's passes,
and their entries are computed with the next draft. Entries of drafts, with features that the head makes, are
dropped after it. A lane is kept when its text ends: the next text goes on behind what both share, and so does
a copy of the lane. A lane may begin within a text, if the target had the tokens before in its cache.

A head that drafts a block has no entries, but keys and values of the features themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gencli.core.request import Feed, Request, StepPlan, shared_length
from gencli.models.decoder.attention_plans import AttentionPlan, SdpaPlan
from gencli.models.decoder.decoder import DecoderLanes
from gencli.models.decoder.decoder_layers import Pass
from gencli.models.kv.lane_buffers import LaneBuffer, LaneLengths, LaneStore, cells_of, room_for
from gencli.models.model_runner import ModelSpec
from gencli.speculative.block_heads import BlockHead, ContextPlan
from gencli.speculative.draft_model import AutoregressiveDrafter, Branching
from gencli.speculative.draft_trees import TreeLevel
from gencli.speculative.drafter import DraftAsk, Features
from gencli.speculative.head_models import FeaturePass, Head, HeadPart, MedusaHead, RecursiveHead
from processors.graphs import upload, upload_ints

# Entries of a lane that are computed at once while a prompt is read, from a multiple of it on: so their bits
# do not depend on the chunks in which the target reads it. Fewer entries wait for the next draft.
BLOCK = 256
_FEW = 32  # entries before the first draft; more than these are those of a prompt, not of accepted drafts


def waits(request: Request, ask: DraftAsk) -> bool:
    """Return whether drafts begin behind the first token: of the prompt, chunks decide what is known."""
    return request.drafts_decide and len(ask.tokens) <= len(request.prompt_ids)


class HeadDrafter(AutoregressiveDrafter):
    """Drafts with a head of a target with this `spec`, for slots below `max_lanes`."""

    _lanes: HeadLanes | BlockLanes | MedusaLanes

    def __init__(
        self,
        head: Head,
        spec: ModelSpec,
        *,
        max_lanes: int,
        notices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(make_lanes(head, spec, max_lanes=max_lanes))
        self.taps, self.notices = head.taps, notices
        self.is_autoregressive = not isinstance(head, BlockHead)

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        runs = super().propose(asks)
        self.is_reading = self._lanes.is_reading
        return runs

    def feed(self, parts: Sequence[Features]) -> None:
        self._lanes.feed(parts)

    def fork(self, source: int, target: int) -> None:
        self._lanes.fork(source, target)


def make_lanes(head: Head, spec: ModelSpec, *, max_lanes: int) -> HeadLanes | BlockLanes | MedusaLanes:
    """Return lanes of a head for the slots below `max_lanes`; `spec` is the target's."""
    if isinstance(head, MedusaHead):
        return MedusaLanes(head, spec)
    if isinstance(head, BlockHead):
        return BlockLanes(head, spec, max_lanes=max_lanes)
    return HeadLanes(head, spec, max_lanes=max_lanes)


class _SlotLanes:
    """What a head holds of the first `lengths` tokens of each slot; functions copy, wipe and free it."""

    def __init__(
        self,
        lengths: LaneLengths,
        copy: Callable[[int, int], None],
        wipe: Callable[[int], None],
        free: Callable[[], None],
    ) -> None:
        self.lengths, self._copy, self._wipe, self._free = lengths, copy, wipe, free

    def cut(self, slot: int, length: int) -> None:
        """Keep the first `length` tokens at most."""
        self.lengths.truncate(slot, max(0, min(length, self.lengths[slot])))

    def fork(self, source: int, target: int) -> None:
        self._wipe(target)
        self._copy(source, target)
        self.lengths.fork(source, target)

    def clear(self) -> None:
        for slot in range(len(self.lengths)):
            self._wipe(slot)
            self.lengths.release(slot)
        self._free()


class _FeatureLanes(_SlotLanes):
    """The features of each slot, in a buffer [rows, 1, capacity, width]."""

    def __init__(self, head: RecursiveHead, lengths: LaneLengths) -> None:
        part, self._store = head.parts[0], LaneStore(lengths)
        self._buffer = LaneBuffer(self._store)
        self._store.buffers = [self._buffer]
        self._like = torch.empty(1, 1, 0, head.width, dtype=part.dtype, device=part.device)
        super().__init__(lengths, self._store.fork, self._store.wipe, self._store.free_cache)

    def write(self, feeds: Sequence[Feed], features: Tensor) -> None:
        """Append the features [N, width] of the tokens of these feeds."""
        plan = StepPlan(tuple(feeds))
        self.lengths.check(plan)
        seated = self._store.seat(plan.feeds)
        data = self._buffer.reserve(*room_for(seated), like=self._like)
        rows, positions = self._cells(seated)
        data[rows, 0, positions] = features
        self.lengths.advance(plan)

    def read(self, feeds: Sequence[Feed]) -> Tensor:
        """Return the features [N, width] at the places of these feeds."""
        rows, positions = self._cells(self._store.seat(tuple(feeds)))
        return self._buffer.data[rows, 0, positions]

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def _cells(self, seated: Sequence[Feed]) -> Tensor:
        """Return the rows and positions [2, N] of tokens in the buffer."""
        return upload([*cells_of(seated)], self._like.device)


class _ContextLanes(_SlotLanes):
    """The keys and values of each slot's features in the layers of a head that drafts blocks."""

    def __init__(self, head: BlockHead, lengths: LaneLengths) -> None:
        self._head, self._store = head, LaneStore(lengths)
        self._buffers = [LaneBuffer(self._store) for _ in head.layers]
        self._store.buffers = self._buffers
        shape = (1, 2 * head.spec.num_kv_heads, 0, head.spec.head_dim)
        self._like = torch.empty(shape, dtype=head.dtype, device=head.device)
        super().__init__(lengths, self._store.fork, self._store.wipe, self._store.free_cache)

    def write(self, feeds: Sequence[Feed], features: Tensor) -> None:
        """Append the features [N, width] of the tokens of these feeds."""
        plan = StepPlan(tuple(feeds))
        self._head.keep(features, *self._entered(plan, ContextPlan))
        self.lengths.advance(plan)

    def states(self, feeds: Sequence[Feed], wanted: Sequence[int]) -> Tensor:
        """Return the states [R, H] of the tokens `wanted` of blocks; the contexts before them stay."""
        plan, head = StepPlan(tuple(feeds)), self._head
        step, buffers = self._entered(plan, partial(SdpaPlan, is_causal=head.is_causal))
        ids = upload_ints([token for feed in feeds for token in feed.tokens], head.device)
        return head(ids, step, buffers, upload_ints(wanted, head.device))

    def _entered(
        self, plan: StepPlan, make: Callable[..., AttentionPlan]
    ) -> tuple[Pass[AttentionPlan], list[Tensor]]:
        """Return the pass over these feeds with the attention that `make` makes, and buffers for them."""
        self.lengths.check(plan)
        seated, head = self._store.seat(plan.feeds), self._head
        num_rows, length = room_for(seated)
        buffers = [buffer.reserve(num_rows, length, like=self._like) for buffer in self._buffers]
        rows, positions = upload([*cells_of(seated)], head.device)
        ropes = tuple([table.rows(positions, None, length) for table in head.tables])
        return Pass(make(seated, (rows, positions), head.dtype), ropes), buffers

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)


class _PartLanes(_SlotLanes):
    """The keys and values of each slot's entries in the layers of a part."""

    def __init__(self, part: HeadPart, lengths: LaneLengths, *, is_fixed: bool) -> None:
        self._lanes = DecoderLanes(part, lengths, is_fixed=is_fixed)
        super().__init__(lengths, self._lanes.fork, self._lanes.release, self._lanes.free_cache)

    def forward(
        self, feeds: Sequence[Feed], features: Tensor, *, makes_all: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Append entries; return the logits [R, V] and the next features, as FeaturePass has them."""
        plan, inside = StepPlan(tuple(feeds)), FeaturePass({}, {}, features=features, makes_all=makes_all)
        self.lengths.check(plan)
        logits = self._lanes.forward(plan.feeds, inside)
        self.lengths.advance(plan)
        assert inside.made is not None
        return logits, inside.made

    @property
    def nbytes(self) -> int:
        return self._lanes.nbytes


@dataclass(slots=True)
class HeadLane:
    """A slot's lane. `tokens` begin the text: those that its features and entries belong to.

    The features are those of tokens from `base` on. `is_checked`: whether the tokens have been compared with
    the text of the slot's sample.
    """

    request: Request
    tokens: list[int] = field(default_factory=list)
    base: int = 0
    is_checked: bool = False


@dataclass(slots=True)
class _SlotDrafts:
    """Drafts of a slot: `tokens` of the entries from `first` on, true ones and then drafts."""

    first: int
    tokens: list[int]


_F = TypeVar("_F", bound=_FeatureLanes | _ContextLanes)


class _TextLanes(Generic[_F]):
    """Lanes of texts: the features of their tokens, or what a head holds in place of them, and `parts`.

    The entries of parts end before the features.
    """

    is_reading = False  # whether drafts of this step wait for entries of a prompt

    def __init__(self, features: _F, parts: Sequence[_PartLanes]) -> None:
        self._features, self._parts = features, parts
        self._lanes: dict[int, HeadLane] = {}

    def request(self, slot: int) -> Request:
        return self._lanes[slot].request

    def admit(self, slot: int, request: Request) -> None:
        """Start a sample. What the slot's lane holds is used if it begins the sample's text."""
        lane = self._lanes.setdefault(slot, HeadLane(request))
        lane.request, lane.is_checked = request, False

    def release(self, slot: int) -> None:
        """End the slot's sample; its lane is kept."""

    @torch.inference_mode()
    def trim(self) -> None:
        for lanes in (self._features, *self._parts):
            lanes.clear()
        self._lanes.clear()

    @property
    def nbytes(self) -> int:
        """The bytes of features, keys and values."""
        return self._features.nbytes + sum(part.nbytes for part in self._parts)

    @torch.inference_mode()
    def fork(self, source: int, target: int) -> None:
        """Copy a lane for a text that begins alike; how much of it is shared is found by its tokens."""
        if source not in self._lanes or target >= len(self._features.lengths):
            return
        held = self._lanes[source]
        lane = self._lanes.setdefault(target, HeadLane(held.request))
        lane.tokens, lane.base, lane.is_checked = [*held.tokens], held.base, False
        for lanes in (self._features, *self._parts):
            lanes.fork(source, target)

    def _write(self, parts: Sequence[Features], condense: Callable[[tuple[Tensor, ...]], Tensor]) -> None:
        """Append the features of the states of parts, of which none is empty."""
        if parts:
            states = tuple(
                [torch.cat(of_tap) for of_tap in zip(*(part.states for part in parts), strict=True)]
            )
            self._features.write([self._taken(part) for part in parts], condense(states))

    def _is_known(self, ask: DraftAsk) -> bool:
        """Return whether the lane has the features of all tokens but the newest, and drop those of others."""
        lane, slot, known = self._lanes[ask.slot], ask.slot, len(ask.tokens) - 1
        if not lane.is_checked or waits(lane.request, ask):  # a lane may have kept states
            return False
        self._keep(slot, ask.tokens, known)
        count = self._features.lengths[slot]
        return bool(count) and lane.base + count == known

    def _taken(self, part: Features) -> Feed:
        """Return where the features of a part belong, after dropping what they replace."""
        lane, slot = self._lanes[part.slot], part.slot
        self._keep(slot, part.tokens, part.start)
        if lane.base + self._features.lengths[slot] != part.start:  # tokens between were not fed
            lane.tokens, lane.base = [*part.tokens[: part.start]], part.start
            for lanes in (self._features, *self._parts):
                lanes.cut(slot, 0)
        tokens = tuple(part.tokens[part.start : part.end])
        lane.tokens[part.start :] = tokens
        return Feed(slot, part.start - lane.base, tokens, num_logits=0)

    def _keep(self, slot: int, text: Sequence[int], end: int) -> None:
        """Keep what belongs to `text`, and of the features those of tokens before `end`.

        Features of a checked lane belong to the text: the target feeds a token that is changed again.
        """
        lane, held = self._lanes[slot], self._features.lengths[slot]
        same = min(lane.base + held, end) if lane.is_checked else 0
        others = lane.tokens[same:]
        same += shared_length(others, [*text[same : same + len(others)]])
        del lane.tokens[same:]
        lane.base, lane.is_checked = min(lane.base, same), True
        self._features.cut(slot, min(same, end) - lane.base)
        for number, part in enumerate(self._parts):  # an entry has read token `number` + 1 behind its own
            part.cut(slot, min(self._features.lengths[slot], same - lane.base - number - 1))


class _NodeRows:
    """The rows of a pass that fed the last level of the trees of slots."""

    def __init__(self, slots: Iterable[int] = ()) -> None:
        """`slots`: one row each, that of its newest token."""
        # From the place of a node, -1 for the newest token, to its row.
        self._shifts = {slot: row + 1 for row, slot in enumerate(slots)}

    def follow(self, levels: Mapping[int, TreeLevel]) -> list[int]:
        """Move on to the next levels. Return the row of the parent of each new node in the pass before."""
        rows, shifts = list[int](), dict[int, int]()
        for slot, level in levels.items():
            count = len(level.tokens)
            shifts[slot] = len(rows) + count - len(level.parents)
            rows += [self._shifts[slot] + parent for parent in level.parents[-count:]]
        self._shifts = shifts
        return rows


class HeadLanes(_TextLanes[_FeatureLanes]):
    """Lanes of a head that drafts from its own output, one for each of `max_lanes` slots.

    `spec` is the target's.
    """

    def __init__(self, head: RecursiveHead, spec: ModelSpec, *, max_lanes: int) -> None:
        self._head, self._spec, self.vocab_size = head, spec, head.vocab_size
        lengths = LaneLengths(max_lanes=max_lanes, context=spec.context, num_ids=head.vocab_size)
        parts = [_PartLanes(part, lengths.like(), is_fixed=head.is_invariant) for part in head.parts]
        super().__init__(_FeatureLanes(head, lengths), parts)
        # Of the drafts of this step: the runs, passes so far, feeds of the last one and what it made.
        self._runs: dict[int, _SlotDrafts] = {}
        self._num_passes, self._fed = 0, list[Feed]()
        self._made = torch.empty(0)
        self._nodes = _NodeRows()

    @torch.inference_mode()
    def feed(self, parts: Sequence[Features]) -> None:
        """Condense the states of the target's pass to features, and compute entries in whole blocks."""
        parts = [part for part in parts if part.end > part.start]
        self._write(parts, self._head.condense)
        while blocks := [block for part in parts if (block := self._block(part.slot, part.tokens))]:
            made = self._features.read([block[0] for block in blocks])
            for number, lanes in enumerate(self._parts):
                feeds = [block[number] for block in blocks]
                for feed in feeds:
                    lanes.cut(feed.lane, feed.start)
                made = lanes.forward(feeds, made, makes_all=number + 1 < len(self._parts))[1]

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft: their lanes have the features of all tokens but the newest."""
        self._runs, self._num_passes, able = {}, 0, []
        for ask in filter(self._is_known, asks):
            lane, slot = self._lanes[ask.slot], ask.slot
            count = self._features.lengths[slot]
            lane.tokens += ask.tokens[len(lane.tokens) :]
            parts = self._parts[: self.room(ask)]
            first = min(count - 1, *[part.lengths[slot] for part in parts])
            for part in parts:
                part.cut(slot, first)
            self._runs[slot] = _SlotDrafts(first, lane.tokens[lane.base + first + 1 :])
            able.append(ask)
        self.is_reading = any(len(run.tokens) > _FEW for run in self._runs.values())
        return able

    def room(self, ask: DraftAsk) -> int:
        """Return the maximum number of drafts for an ask."""
        length = len(ask.tokens)
        most = min(ask.most, self._spec.limit(length) - length)
        return most if self._head.most is None else min(most, self._head.most)

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Return the tokens of the true entries that the slot's lane lacks; the newest token is the last."""
        return tuple(self._runs[ask.slot].tokens)

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> Tensor:
        """Feed tokens by slot. Return the logits [len(parts), V] after the last token of each."""
        number, has_parts = self._num_passes, len(self._parts) > 1
        for slot, tokens in parts.items() if number else ():
            self._runs[slot].tokens += tokens
        if number and not has_parts:  # behind what the last pass has made
            lengths = self._parts[0].lengths
            feeds = [Feed(slot, lengths[slot], tokens) for slot, tokens in parts.items()]
        else:  # each part has the same entries, with tokens one place further on
            runs = [(slot, self._runs[slot]) for slot in parts]
            feeds = [Feed(slot, run.first, tuple(run.tokens[number:])) for slot, run in runs]
        features = self._made_for(feeds) if number else self._features.read(feeds)
        part = self._parts[number if has_parts else 0]
        logits, self._made = part.forward(feeds, features, makes_all=has_parts)
        self._fed, self._num_passes, self._nodes = feeds, number + 1, _NodeRows(parts)
        return logits

    @property
    def branching(self) -> Branching:
        return "none" if len(self._parts) > 1 else "nodes"

    def branch(self, levels: Mapping[int, TreeLevel]) -> Tensor:
        """Feed the new nodes of trees. Return the logits [N, V] after each of them."""
        part = self._parts[0]
        feeds = [
            Feed(slot, part.lengths[slot], level.tokens, len(level.tokens), parents=level.parents)
            for slot, level in levels.items()
        ]
        rows = self._nodes.follow(levels)
        logits, self._made = part.forward(feeds, self._made[upload_ints(rows, self._made.device)])
        return logits

    def _made_for(self, feeds: Sequence[Feed]) -> Tensor:
        """Return the features that the last pass has made for these feeds, whose slots were all in it."""
        if len(feeds) == len(self._fed):
            return self._made
        counts = [len(feed.tokens) if len(self._parts) > 1 else 1 for feed in self._fed]
        ends = dict(zip([feed.lane for feed in self._fed], accumulate(counts), strict=True))
        rows = [row for feed in feeds for row in range(ends[feed.lane] - len(feed.tokens), ends[feed.lane])]
        return self._made[upload_ints(rows, self._made.device)]

    def _block(self, slot: int, text: Sequence[int]) -> list[Feed]:
        """Return the next block of entries that a lane lacks, as a feed of each part; [] if none is whole."""
        lane, count = self._lanes[slot], len(self._parts)
        first = min([part.lengths[slot] for part in self._parts])
        end = (first // BLOCK + 1) * BLOCK
        if end > min(self._features.lengths[slot], len(text) - lane.base - count):
            return []
        start, last = lane.base + first + 1, lane.base + end + 1
        lane.tokens += text[len(lane.tokens) : last + count - 1]
        return [Feed(slot, first, tuple(text[start + k : last + k]), num_logits=0) for k in range(count)]


class BlockLanes(_TextLanes[_ContextLanes]):
    """Lanes of a head that drafts a block, one for each of `max_lanes` slots. `spec` is the target's."""

    def __init__(self, head: BlockHead, spec: ModelSpec, *, max_lanes: int) -> None:
        self._head, self._spec, self.vocab_size = head, spec, head.vocab_size
        context = spec.context + head.block_size
        lengths = LaneLengths(max_lanes=max_lanes, context=context, num_ids=head.vocab_size)
        super().__init__(_ContextLanes(head, lengths), ())
        # Of the drafts of this step: the places of slots, their most drafts, how many there are so far, their
        # states [S, most, H] and logits [S, most, Vd], and the states of the Markov head [S, r], or of a tree
        # those of the last level's nodes.
        self._places: dict[int, int] = {}
        self._count = self._number = 0
        self._states = self._logits = self._markov = torch.empty(0)
        self._nodes = _NodeRows()

    @torch.inference_mode()
    def feed(self, parts: Sequence[Features]) -> None:
        """Condense the states of the target's pass, and keep their keys and values."""
        self._write([part for part in parts if part.end > part.start], self._head.condense)

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft: their lanes have the features of all tokens but the newest."""
        able = [ask for ask in asks if self._is_known(ask)]
        self._count, self._number = max(map(self.room, able), default=0), 0
        return able

    def room(self, ask: DraftAsk) -> int:
        """Return the maximum number of drafts for an ask."""
        length = len(ask.tokens)
        return min(ask.most, self._spec.limit(length) - length, self._head.most)

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Return the newest token, which begins the block."""
        return (ask.tokens[-1],)

    @torch.inference_mode()
    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> Tensor:
        """Return the logits [len(parts), V] of the next draft of these slots, behind their last token."""
        if not self._number:
            self._draft(parts)
            self._nodes = _NodeRows(parts)
        places = upload_ints([self._places[slot] for slot in parts], self._head.device)
        return self._next(places, [tokens[-1] for tokens in parts.values() if tokens], places)

    @property
    def branching(self) -> Branching:
        return "depth" if self._head.markov is None else "block"

    def branch(self, levels: Mapping[int, TreeLevel]) -> Tensor:
        """Return the logits of the next draft, [N, V] with a Markov head and [len(levels), V] without."""
        if self._head.markov is None:
            return self.extend(dict.fromkeys(levels, ()))
        tokens = [token for level in levels.values() for token in level.tokens]
        places = [self._places[slot] for slot, level in levels.items() for _ in level.tokens]
        self._markov = self._markov[upload_ints(self._nodes.follow(levels), self._head.device)]
        return self._next(upload_ints(places, self._head.device), tokens, slice(None))

    def _next(self, places: Tensor, tokens: Sequence[int], rows: Tensor | slice) -> Tensor:
        """Return the logits [R, V] of the next draft of blocks at these places, behind `tokens` [R].

        The Markov head's states are those at `rows`.
        """
        head, number = self._head, self._number
        self._number += 1
        logits = self._logits[places, number]
        if head.markov is not None:
            before, states = upload_ints(tokens, head.device), self._states[places, number]
            bias, self._markov[rows] = head.markov(before, states, self._markov[rows])
            logits = logits + bias
        return head.spread(logits)

    def _draft(self, parts: Mapping[int, tuple[int, ...]]) -> None:
        """Compute the blocks of these slots, which begin with their newest tokens."""
        head, count, masks = self._head, self._count, (self._head.mask_id,) * (self._head.block_size - 1)
        lengths = self._features.lengths
        feeds = [Feed(slot, lengths[slot], (*newest, *masks), num_logits=0) for slot, newest in parts.items()]
        firsts = range(head.first, head.block_size * len(feeds), head.block_size)
        wanted = [place for first in firsts for place in range(first, first + count)]
        states = self._features.states(feeds, wanted)
        self._places = {slot: place for place, slot in enumerate(parts)}
        self._logits = head.project(states).view(len(feeds), count, -1)
        self._states = states.view(len(feeds), count, -1)
        if head.markov is not None:
            self._markov = states.new_zeros(len(feeds), head.markov.rank)


@dataclass(slots=True)
class _NewestState:
    """The newest state [H] of a slot's text, that of token `end` - 1."""

    request: Request
    end: int = 0
    state: Tensor | None = None


class MedusaLanes:
    """The newest state of each slot's text, which is all that Medusa reads. `spec` is the target's."""

    is_reading = False

    def __init__(self, head: MedusaHead, spec: ModelSpec) -> None:
        self._head, self._spec, self.vocab_size = head, spec, head.vocab_size
        self._lanes: dict[int, _NewestState] = {}
        self._num_passes = 0

    def request(self, slot: int) -> Request:
        return self._lanes[slot].request

    def admit(self, slot: int, request: Request) -> None:
        self._lanes[slot] = _NewestState(request)

    def release(self, slot: int) -> None:
        del self._lanes[slot]

    def trim(self) -> None:
        self._lanes.clear()

    def fork(self, source: int, target: int) -> None:
        """No-op: the target is fed one more token at least."""

    @torch.inference_mode()
    def feed(self, parts: Sequence[Features]) -> None:
        """Take the last state of each part."""
        parts = [part for part in parts if part.end > part.start]
        if not parts:
            return
        states = torch.stack([part.states[0][-1] for part in parts])  # views would hold whole passes
        for part, state in zip(parts, states, strict=True):
            lane = self._lanes[part.slot]
            lane.end, lane.state = part.end, state

    def catch_up(self, asks: Sequence[DraftAsk]) -> list[DraftAsk]:
        """Return the asks that can draft: those whose state is that before the newest token."""
        self._num_passes = 0
        able = [ask for ask in asks if 0 < self._lanes[ask.slot].end == len(ask.tokens) - 1]
        return [ask for ask in able if not waits(self._lanes[ask.slot].request, ask)]

    def room(self, ask: DraftAsk) -> int:
        """Return the maximum number of drafts for an ask."""
        length = len(ask.tokens)
        return min(ask.most, self._spec.limit(length) - length, len(self._head.blocks))

    def missing(self, ask: DraftAsk) -> tuple[int, ...]:
        """Return no tokens: a draft does not depend on those before it."""
        return ()

    @property
    def branching(self) -> Branching:
        return "depth"

    def branch(self, levels: Mapping[int, TreeLevel]) -> Tensor:
        """Return the logits [len(levels), V] of the next draft of these slots."""
        return self.extend(dict.fromkeys(levels, ()))

    def extend(self, parts: Mapping[int, tuple[int, ...]]) -> Tensor:
        """Return the logits [len(parts), V] of the next draft of these slots."""
        states = torch.stack([state for slot in parts if (state := self._lanes[slot].state) is not None])
        self._num_passes += 1
        return self._head(self._num_passes - 1, states)
