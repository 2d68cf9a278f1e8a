"""Attention models of transformers: all lanes share one KV cache and, where that is faster, one forward
pass; how the lanes of a model are chosen, and its decode steps in static shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import cache_utils
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from gencli.core.request import Feed
from gencli.errors import ModelError
from gencli.models.backend import ALONE, EXPERTS_ON_HOST, SPREAD
from gencli.models.kv.lane_batches import (
    FLAT_MODELS,
    ForwardBatch,
    fill_gaps,
    is_rectangle,
    make_packed_batch,
    make_padded_batch,
    packed_layout,
    split_feeds,
    static_masks,
    use_lane_masks,
)
from gencli.models.kv.lane_buffers import (
    SPARE_ROWS,
    LaneBuffer,
    LaneLengths,
    LaneStore,
    StaticInputs,
    StaticSteps,
    StepRows,
    is_decode_step,
    room_for,
    roomy,
    step_rows,
)
from gencli.models.kv.model_calls import HiddenStates, LogitsCall, OwnCacheLanes, SelfCheck
from gencli.models.model_runner import Lanes
from gencli.models.rope import (
    LongRopeLanes,
    factors_of,
    rope_switches,
    static_factors,
    taking_factors,
    use_lane_factors,
)
from processors.graphs import Graphs, upload

_MISLABELLED = {"gpt_neox", "gpt_neox_japanese"}  # decoders with is_decoder=False in their configuration
_STATE_IN_MODULES = {"recurrent_gemma"}  # the state is in the layers, not in a cache
_COUNTS_POSITIONS = {"llama4_text"}  # attention scales by positions counted from the longest lane
_Way = Callable[[LaneLengths], Lanes]


class ChosenLanes(NamedTuple):
    """KV lanes, notices for the user, and why their decode steps do not run by graphs ("" if they do)."""

    lanes: Lanes
    notices: tuple[str, ...]
    no_graphs: str


def choose_lanes(model: Any, lengths: LaneLengths, graphs: Graphs | None = None) -> ChosenLanes:
    """Return the fastest correct lanes for the model.

    These are shared lanes where the architecture allows them, else one cache per lane. The choice is
    verified on this model (see SelfCheck), or on its architecture by the tests. `graphs` run the decode steps
    of shared lanes where that is possible. Raises ModelError for models that cannot continue text token by
    token.
    """
    text = model.config.get_text_config(decoder=True)
    if getattr(text, "is_decoder", True) is False and text.model_type not in _MISLABELLED:  # bidirectional
        raise ModelError(f"{text.model_type} is not a decoder: it does not continue text token by token")
    if text.model_type in _STATE_IN_MODULES:
        raise ModelError(f"{text.model_type} keeps its state inside its layers, so requests cannot share it")
    if switches := rope_switches(text):
        use_lane_factors(model)
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        way, notices, no_graphs = _checked_way(model, text, switches, graphs)
    if not switches:
        return ChosenLanes(way(lengths), notices, no_graphs)
    inner = lengths.like()
    return ChosenLanes(LongRopeLanes(way(inner), inner, switches), notices, no_graphs)


def _checked_way(
    model: Any, text: Any, switches: tuple[int, ...], graphs: Graphs | None
) -> tuple[_Way, tuple[str, ...], str]:
    """Return a factory for the fastest correct lanes, and the other parts of Chosen.

    Raises ModelError if no lanes are correct.
    """
    is_spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
    own_ways = [*_own_ways(model, text, switches)]
    if is_spread:
        notice = "A model on several devices runs one request at a time in each step"
        if "disk" in model.hf_device_map.values():  # every pass of the check would read all weights
            return own_ways[0], (notice,), ALONE
    else:
        notice = (
            f"{text.model_type} models run one request at a time in each step: "
            "batches are right, but not faster"
        )
    # The tests run these models on shared lanes; a check would cost about ten passes of one token at a start.
    is_tested = text.model_type in FLAT_MODELS and type(model).__module__.startswith("transformers.models.")
    check = None if is_tested else SelfCheck(model)
    if not is_spread and (shared := _shared_way(model, text, switches, check)):
        way, no_graphs = _with_graphs(shared, model, graphs, check)
        return way, (), no_graphs
    check = check or SelfCheck(model)
    for way in own_ways:
        if not (fault := check.fault(way)):
            return way, (notice,), ALONE
    raise ModelError(f"{text.model_type} models cannot be run: {fault}")


def _shared_way(model: Any, text: Any, switches: tuple[int, ...], check: SelfCheck | None) -> _Way | None:
    """Return a factory for lanes in one shared cache; None if the model does not support it.

    With `check` None the model is known to be correct. On a fault the model's attention is restored.
    """
    if text.model_type in _COUNTS_POSITIONS or not fits_lanes(text) or not LogitsCall(model).takes_positions:
        return None
    attention = model.config._attn_implementation
    way: _Way = partial(SlotLanes, model, rope_switches=switches)
    if use_lane_masks(model):
        if check is None or not check.fault(way):
            return way
        model.set_attn_implementation(attention)
    return None


def _with_graphs(
    shared: Callable[..., Lanes], model: Any, graphs: Graphs | None, check: SelfCheck | None
) -> tuple[_Way, str]:
    """Return the factory of shared lanes whose decode steps run by graphs, or as it is, and why."""
    reason = why_not_static(model)
    if graphs is None or reason:
        return shared, reason
    tried = partial(shared, graphs=Graphs(None))
    if check is not None and (fault := check.fault(tried, decodes=True)):
        return shared, f"its steps of fixed shapes fail a check: {fault}"
    return partial(shared, graphs=graphs), ""


def _own_ways(model: Any, text: Any, switches: tuple[int, ...]) -> Iterator[_Way]:
    """Yield factories for one cache per lane: first with all the cache claims to support, then with less."""
    is_recurrent = not fits_lanes(text)
    # A model that takes no transformers cache keeps its state elsewhere.
    can_rollback = can_crop(text) and LogitsCall(model).takes_cache
    abilities = [(is_recurrent, can_rollback), (is_recurrent, False), (True, False)]
    for recurrent, rollback in dict.fromkeys(abilities):
        yield partial(
            _own_lanes, model=model, is_recurrent=recurrent, can_rollback=rollback, rope_switches=switches
        )


def _own_lanes(lengths: LaneLengths, **options: Any) -> Lanes:
    return OwnCacheLanes(**options)


# Maximum pads (tokens) in a shared pass: about the cost of reading the weights once more.
PAD_BUDGET_CPU, PAD_BUDGET_ACCELERATOR = 16, 256


class SlotLanes:
    """KV lanes in one LaneCache; a forward pass feeds a batch of them.

    With `graphs` steps of one token a feed have shapes that these can record.
    """

    can_rollback = True

    def __init__(
        self,
        model: Any,
        lengths: LaneLengths,
        *,
        rope_switches: tuple[int, ...] = (),
        graphs: Graphs | None = None,
    ) -> None:
        self._call = LogitsCall(model)
        self._device: torch.device = model.device
        self._cache = cache = LaneCache(model.config, lengths, spare=0 if graphs is None else SPARE_ROWS)
        self._static: StaticCalls | None = None
        if graphs is not None:
            context = lengths.context
            self._static = StaticCalls(self._call, cache, graphs, self._device, context, rope_switches)
        self._pad_budget = PAD_BUDGET_CPU if self._device.type == "cpu" else PAD_BUDGET_ACCELERATOR
        self._rope_switches = rope_switches
        self._is_flat = model.config.get_text_config(decoder=True).model_type in FLAT_MODELS
        # The packed layout has no pads.
        self._pass_budget = sys.maxsize if self._is_flat else self._pad_budget

    def forward(self, feeds: tuple[Feed, ...], ids: Tensor | None = None) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order.

        `ids` [R] int64 on the device replace the tokens of a step of one token a feed, which takes `graphs`.
        """
        seated = self._cache.store.seat(feeds)
        if self._static is not None and is_decode_step(seated):
            return self._static(seated, ids)
        assert ids is None
        batches = self._batches(seated)
        passes = [self._run(batch) for batch in batches]
        rows = passes[0] if len(passes) == 1 else torch.cat(passes)
        fed = [feed for batch in batches for feed in batch.feeds if feed.tokens]
        if not len(rows) or all(a is b for a, b in zip(fed, seated, strict=True)):
            return rows
        starts = accumulate((feed.num_logits for feed in fed), initial=0)
        first_row = {feed.lane: start for feed, start in zip(fed, starts, strict=False)}
        order = [first_row[feed.lane] + index for feed in seated for index in range(feed.num_logits)]
        return rows[upload(order, rows.device)]

    def forward_states(
        self, feeds: tuple[Feed, ...], states: HiddenStates, taps: Collection[int]
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """As `forward`; return also the hidden states [N, H] of all fed tokens at `taps`, in feed order."""
        seated = self._cache.store.seat(feeds)
        logits, parts = dict[int, Tensor](), dict[int, dict[int, Tensor]]()
        for batch in self._batches(seated):
            with states.at(taps) as passed:
                rows = self._run(batch)
            own = [feed for feed in batch.feeds if feed.tokens]
            cut = torch.split(rows, [feed.num_logits for feed in own])
            logits |= zip([feed.lane for feed in own], cut, strict=True)
            end = 0
            for row, feed in enumerate(batch.feeds):
                end += len(feed.tokens)
                index = (0, slice(end - len(feed.tokens), end))
                if not batch.query_splits:  # its pads are before its tokens
                    index = (row, slice(batch.ids.shape[1] - len(feed.tokens), None))
                parts[feed.lane] = {tap: passed[tap][index] for tap in taps}
        order = [feed.lane for feed in seated]
        joined = {tap: torch.cat([parts[lane][tap] for lane in order]) for tap in taps}
        return torch.cat([logits[lane] for lane in order]), joined

    def _batches(self, feeds: tuple[Feed, ...]) -> list[ForwardBatch]:
        """Return the passes of a step that is not static; `feeds` have buffer rows as lanes."""
        room = room_for(feeds)
        if self._static is not None:
            room = room[0], self._static.capacity(room[1])
        budget, batches = self._pad_budget, list[ForwardBatch]()
        for group in split_feeds(feeds, pad_budget=self._pass_budget):
            if self._is_flat and not is_rectangle(group):
                batches.append(make_packed_batch(group, self._device, room=room, pad_budget=budget))
            else:
                group = fill_gaps(group, pad_budget=budget)
                batches.append(make_padded_batch(group, self._device, room=room))
        return batches

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds of one token without growing. No lane is empty."""
        assert self._static is not None
        feeds = self._cache.store.seat(feeds)
        return self._cache.store.holds(self._static.rows(feeds).num_held, max(feed.end for feed in feeds))

    def truncate(self, lane: int, length: int) -> None:
        """No-op: the mask hides tokens beyond a lane's length."""

    def fork(self, source: int, target: int) -> None:
        self._cache.store.fork(source, target)

    def release(self, lane: int) -> None:
        self._cache.store.wipe(lane)

    def free_cache(self) -> None:
        self._cache.store.free_cache()
        if self._static is not None:
            self._static.free()

    def _run(self, batch: ForwardBatch) -> Tensor:
        self._cache.batch = batch
        with packed_layout(batch.query_splits), self._factors(batch):
            outputs = self._call(
                batch.wanted, input_ids=batch.ids, position_ids=batch.positions, cache=self._cache
            )
        logits: Tensor = outputs.logits  # [B, wanted, V]
        if batch.query_splits or all(feed.num_logits == batch.wanted for feed in batch.feeds):
            return logits.flatten(0, 1)
        rows = zip(logits, batch.feeds, strict=True)
        return torch.cat([row[batch.wanted - feed.num_logits :] for row, feed in rows])

    def _factors(self, batch: ForwardBatch) -> AbstractContextManager[None]:
        """Return a context with the rotary factors of each lane's text; no effect without long rope."""
        switches, is_row = self._rope_switches, bool(batch.query_splits)
        if not switches:
            return nullcontext()
        factors = [
            factors_of(feed, switches)
            for feed in batch.feeds
            for _ in range(len(feed.tokens) if is_row else 1)
        ]
        return taking_factors(factors, switches, length=batch.kv_length, device=self._device, is_row=is_row)


_OWN_LONG_ROPE = {"phimoe"}  # whose rotary module is not that of the library
_GROUPED = (9, 10)  # compute capabilities, major, with products of groups whose sizes stay on the device


class StaticCalls:
    """Runs steps of one token a feed in a LaneCache, which `graphs` record.

    Steps with drafts are not static here: a lane's keys and values would be copied once for each of its rows.
    Keys and values are read in place where few rows are idle, else copied by the model's pass. `context` is
    the maximum number of tokens in a lane.
    """

    def __init__(
        self, call: LogitsCall, cache: LaneCache, graphs: Graphs, device: torch.device, context: int,
        switches: tuple[int, ...],
    ) -> None:  # fmt: skip
        self._call, self._cache, self._context, self._switches = call, cache, context, switches
        self._steps = StaticSteps(graphs, device, switches)

    def __call__(self, feeds: Sequence[Feed], ids: Tensor | None = None) -> Tensor:
        """Return the logits [R, V], a new tensor; `feeds` have buffer rows as lanes.

        `ids` [R] on the device replace the tokens.
        """
        store, rows = self._cache.store, self.rows(feeds)
        room = rows.num_held, self.capacity(max(feed.end for feed in feeds))
        store.reserve(*room)
        placed = tuple(buffer.data for buffer in store.buffers)
        capacity = max(placed[0].shape[2], room[1])
        return self._steps(
            feeds, rows, placed, capacity, lambda inputs: self._run(inputs, rows.in_place, room), ids
        )

    def rows(self, feeds: Sequence[Feed]) -> StepRows:
        store = self._cache.store
        return step_rows(feeds, store.spare, max_rows=store.num_rows)

    def capacity(self, length: int) -> int:
        return roomy(length, self._context)

    def free(self) -> None:
        self._steps.free()

    def _run(self, inputs: StaticInputs, in_place: bool, room: tuple[int, int]) -> Tensor:
        """Run the model on static tensors; return the logits [rows, V]."""
        positions = inputs.positions
        self._cache.batch = ForwardBatch(
            feeds=(),
            ids=inputs.ids[:, None],
            positions=positions[:, None],
            lanes=slice(0, len(positions)) if in_place else inputs.rows,
            room=room,
            start=None,
            kv_length=inputs.end,
            wanted=1,
            target=(inputs.rows, positions),
            source=None,
        )
        batch = self._cache.batch
        with ExitStack() as stack:
            stack.enter_context(static_masks())
            if inputs.factors is not None:
                stack.enter_context(static_factors(inputs.factors[:, None], self._switches))
            outputs = self._call(1, input_ids=batch.ids, position_ids=batch.positions, cache=self._cache)
        logits: Tensor = outputs.logits  # [rows, 1, V]
        return logits.flatten(0, 1)


def why_not_static(model: Any) -> str:
    """Return why the decode steps of a transformers model have no static shapes; "" if they may have.

    They have where transformers declares that it compiles the model as one graph, if nothing that the model
    is given here makes it read values on the host.
    """
    config = model.config.get_text_config(decoder=True)
    if model.tp_size is not None or getattr(model, "hf_device_map", None):
        return SPREAD
    if not type(model).__module__.startswith("transformers.models."):
        return "the model's code is its own"
    if not model._can_compile_fullgraph:
        return f"transformers does not compile {config.model_type} models as one graph"
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and not quantizer.is_compileable:
        return "products with weights in this format are not compiled by transformers"
    kinds = [getattr(module, "rope_type", "") for module in model.modules()]  # some have one a layer type
    is_dynamic = any("dynamic" in (kind.values() if isinstance(kind, dict) else [kind]) for kind in kinds)
    if is_dynamic or (config.model_type in _OWN_LONG_ROPE and rope_switches(config)):
        return "its rotary factors follow the longest text of a step"
    return EXPERTS_ON_HOST if _reads_experts(model) else ""


def _reads_experts(model: Any) -> bool:
    """Return whether the host reads the sizes of groups of tokens, of which products of experts are made."""
    device = model.device
    is_grouped = device.type != "cuda" or (
        model.dtype == torch.bfloat16 and torch.cuda.get_device_capability(device)[0] in _GROUPED
    )
    kept = ("batched_mm", "grouped_mm") if is_grouped else ("batched_mm",)
    return any(
        module.config._experts_implementation not in kept
        for module in model.modules()
        if hasattr(module, "_is_expert_parallel")  # what transformers sets on all modules of experts
    )


# Layers without a cache; older releases of transformers have no such class.
_EMPTY: tuple[type, ...] = (cache_utils.DummyLayer,) if hasattr(cache_utils, "DummyLayer") else ()


def fits_lanes(config: Any) -> bool:
    """Return whether every layer of the model caches plain keys and values, or nothing."""
    return _has_only(config, DynamicLayer, DynamicSlidingWindowLayer, *_EMPTY)


def can_crop(config: Any) -> bool:
    """Return whether the transformers cache of this model can drop its last tokens."""
    return _has_only(config, DynamicLayer, *_EMPTY)


def _has_only(config: Any, *kinds: type) -> bool:
    try:
        layers = DynamicCache(config=config).layers
    except KeyError:  # a layer type without a cache class
        return False
    return all(type(layer) in kinds for layer in layers)


class LaneLayer:
    """One layer of the cache. A sliding-window layer keeps every token; the model's mask hides old ones."""

    is_compileable = False
    supports_early_init = False

    def __init__(self, store: LaneStore, *, is_sliding: bool) -> None:
        self.is_sliding = is_sliding
        self.buffers = (LaneBuffer(store), LaneBuffer(store))


class LaneCache(Cache):  # type: ignore[misc]
    """The cache of a model call: reads and writes the lanes of `batch`, given as buffer rows.

    There are `spare` rows more than lanes.
    """

    def __init__(self, config: Any, lengths: LaneLengths, *, spare: int = 0) -> None:
        self.store = LaneStore(lengths, spare=spare)
        layers = [
            layer if isinstance(layer, _EMPTY) else LaneLayer(self.store, is_sliding=layer.is_sliding)
            for layer in DynamicCache(config=config).layers
        ]
        super().__init__(layers=layers)
        self.store.buffers = [buffer for layer in layers for buffer in getattr(layer, "buffers", ())]
        self.batch: ForwardBatch | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of one layer; return those of all lanes in the batch."""
        batch = cast(ForwardBatch, self.batch)
        keys, values = self.layers[layer_idx].buffers
        return keys.write(batch, key_states), values.write(batch, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the tokens held before this pass by the lane that is longest after it."""
        return 0 if self.batch is None else self.batch.num_held

    @property
    def is_initialized(self) -> bool:
        """Whether the longest lane of the batch held tokens before this pass."""
        return self.get_seq_length() > 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the number of keys (K) and the position of the first one."""
        return cast(ForwardBatch, self.batch).kv_length, 0

    def get_query_offset(self, layer_idx: int = 0) -> int | Tensor:
        """Return the input of the lane masks: the common start position, or all positions [B, Q]."""
        batch = cast(ForwardBatch, self.batch)
        return batch.positions if batch.start is None else batch.start
