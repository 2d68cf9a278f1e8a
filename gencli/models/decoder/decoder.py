"""The decoder in PyTorch alone: its runner, its KV lanes, where all feeds of a step are one row of tokens
in one forward pass, and the pass itself from embedding to vocabulary projection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Protocol

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.models.backend import why_no_graphs
from gencli.models.decoder.attention_plans import (
    AttentionPlan,
    BagTables,
    Cells,
    CompiledPlan,
    DecodePlan,
    FusedPlan,
    SdpaPlan,
    TiledPlan,
    apart,
    device_plan,
    move_tokens,
)
from gencli.models.decoder.decoder_layers import (
    DecoderLayer,
    Embeddings,
    Experts,
    Inside,
    Pass,
    fused_layers,
    read_layer,
    read_norm,
)
from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.attention_llvm import TILE, can_compile
from gencli.models.decoder.kernels.layer_kernels import Norm
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.decoder.products.coded_weights import Int4Product
from gencli.models.decoder.products.compiled_products import CompiledProduct
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.products.product_maker import (
    HEAD,
    KernelOptions,
    ProductMaker,
    can_stack,
    choose_kernels,
    quantized_maker,
    read_times,
)
from gencli.models.decoder.weight_readers import (
    JoinedExpertsReader,
    SafetensorsReader,
    WeightReader,
    open_tensors,
)
from gencli.models.device import (
    CudaGraphs,
    elsewhere,
    make_graphs,
    pick_device,
    pick_dtype,
    pick_kv_dtype,
    refusing_full,
    trim_memory,
)
from gencli.models.files.checkpoint import Checkpoint, unused_notices
from gencli.models.files.gguf_header import is_gguf, kept_bits, kept_kinds, weight_format, widening
from gencli.models.files.gguf_weights import kept_maker, open_gguf, wide_dtype
from gencli.models.files.model_card import STEP, declared_ends
from gencli.models.files.model_files import OnBytes, Quantize, Sum, bits_of
from gencli.models.hf_runner import first_count
from gencli.models.kv.lane_buffers import (
    SPARE_ROWS,
    LaneBuffer,
    LaneLengths,
    LaneRunner,
    LaneStore,
    StaticInputs,
    StaticSteps,
    cells_of,
    fed_to,
    is_decode_step,
    is_drafted_step,
    room_for,
    roomy,
    step_rows,
    stored_width,
    wanted_of,
)
from gencli.models.model_runner import LAST, Inner, Lanes, ModelSpec
from gencli.models.rope import LongRopeLanes, RopeTable, factors_of
from processors.graphs import Graphs, upload_ints

_MAX_WORKERS = 4  # that load a model; each holds a matrix beside those that are done


class DecoderRunner(LaneRunner):
    """A decoder with its KV lanes.

    `eos_ids` are the end-of-text ids of the model, `kernels` made its products. `graphs` run its decode
    steps; by default they are launched one by one.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        name: str = "model",
        max_lanes: int = 8,
        eos_ids: tuple[int, ...] = (),
        dtype_reason: str = "",
        backend: str = "native",
        quantization: str = "",
        kernels: ProductMaker | None = None,
        kv_dtype: torch.dtype | None = None,
        notices: tuple[str, ...] = (),
        graphs: Graphs | None = None,
    ) -> None:
        spec = decoder.spec
        lengths = LaneLengths(max_lanes=max_lanes, context=spec.context, num_ids=spec.vocab_size)
        self._decoder = decoder
        reads_experts = any(isinstance(layer.mlp, Experts) for layer in decoder.layers)
        why_not = why_no_graphs(spec, reads_experts=reads_experts)
        if graphs is None:
            graphs = make_graphs("off", why_not, decoder.device)
        self._kernels = kernels
        is_fixed = kernels is not None and kernels.is_invariant and decoder.device.type in ("cpu", "cuda")
        model = ModelSpec(
            name=name,
            vocab_size=spec.vocab_size,
            context=spec.context,
            device=decoder.device,
            dtype=decoder.dtype,
            eos_ids=eos_ids,
            dtype_reason=dtype_reason,
            backend=backend,
            quantization=quantization,
            kernels=() if kernels is None else kernels.names,
            has_invariant_rows=is_fixed,
            kv_dtype=kv_dtype or decoder.dtype,
            notices=notices,
            rope_switches=spec.rope_switches,
            num_layers=0 if spec.rope_switches else spec.num_layers,  # a lane may be fed twice in a step
            is_tied=spec.is_tied,
            hidden=0 if spec.rope_switches else spec.hidden,
            graphs=graphs,
            no_graphs=elsewhere(decoder.device) or why_not or "`cuda_graphs` is off",
            token_bytes=spec.token_numbers * decoder.dtype.itemsize,
            can_run_ahead=not spec.rope_switches and not reads_experts,
            trees=not spec.rope_switches,  # to which a tree would have to be fed twice
        )
        inner = lengths.like() if spec.rope_switches else lengths
        is_compiled = CompiledProduct.kernel in model.kernels
        lanes: Lanes = DecoderLanes(
            decoder, inner, kv_dtype, is_fixed=is_fixed, is_compiled=is_compiled, graphs=graphs
        )
        if spec.rope_switches:
            lanes = LongRopeLanes(lanes, inner, spec.rope_switches)
        super().__init__(model, lanes, lengths)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        dtype: str = "auto",
        device: str = "auto",
        max_lanes: int = 8,
        backend: str = "native",
        quantize: Quantize = "none",
        kernels: KernelOptions | None = None,
        kv_dtype: str = "auto",
        cuda_graphs: CudaGraphs = "auto",
        on_bytes: OnBytes | None = None,
    ) -> DecoderRunner:
        """Load a checkpoint that the decoder knows: its `spec` is not None.

        `dtype` and `device` are as for HFRunner.load. Weights are quantized if `quantize` says so or if the
        checkpoint's are; those of a GGUF file keep their bits on a CPU with the dtype auto.
        `on_bytes` is called with the loaded and the total bytes. Raises UsageError for an unknown dtype or
        device, ModelError for weights that do not fit, `kernels` that this machine does not have, a
        `kv_dtype` that is not smaller than the dtype, or `cuda_graphs` = on where they cannot be had.
        """
        assert checkpoint.spec is not None
        spec, folder, where = checkpoint.spec, checkpoint.folder, pick_device(device)
        bits, options = checkpoint.bits or bits_of(quantize), kernels or KernelOptions()
        is_kept = weight_format(folder, quantize, dtype=dtype, device=where.type) == "kept"
        is_narrow = is_kept or bits is not None
        number, reason = pick_dtype(dtype, device=where, stored=checkpoint.stored, is_quantized=is_narrow)
        kv_number = pick_kv_dtype(kv_dtype, number)
        reads_experts = spec.experts is not None and not can_stack(number, where, options)
        graphs = make_graphs(cuda_graphs, why_no_graphs(spec, reads_experts=reads_experts), where)
        make: ProductMaker
        if is_kept:
            make = kept_maker(folder, options, where, number)
        else:
            make = _maker(spec, number, where, bits, options, is_stored=checkpoint.bits is not None)
        eos_ids = declared_ends(folder)  # reads a file's vocabulary: before the weights take memory
        workers = min(_MAX_WORKERS, torch.get_num_threads()) if where.type == "cpu" else 1
        decoder, unused = read_decoder(
            checkpoint, make=make, dtype=number, device=where, on_bytes=on_bytes, workers=workers
        )
        keeps_codes = checkpoint.stored == "MXFP4" and make.stacks_experts and number.itemsize == 2
        kept_format = f"int{bits}" if bits is not None else checkpoint.stored if keeps_codes else ""
        notices: list[str] = []
        if bits is None and is_gguf(folder):
            wide = wide_dtype() if is_kept and where.type == "cpu" else number
            kept = kept_bits(where.type) if is_kept else ()
            notices += widening(folder, str(wide).removeprefix("torch."), wide.itemsize, kept)
        has_rows = make.rounds_activations or Int4Product.kernel in make.names
        if has_rows and (why_not := missing()) is not None:
            notices.append(
                f"Weights of {bits or 4} bits have the kernel of PyTorch, as {why_not}; the compiled one of "
                "pip install 'gencli[cpu]' is faster and closer to the weights."
            )
        notices += unused_notices(unused)
        return cls(
            decoder,
            name=str(folder),
            max_lanes=max_lanes,
            eos_ids=eos_ids,
            dtype_reason=reason,
            backend=backend,
            quantization=" and ".join(kept_kinds(folder, where.type)) if is_kept else kept_format,
            kernels=make,
            kv_dtype=kv_number,
            notices=tuple(notices),
            graphs=graphs,
        )

    def forward_layers(
        self,
        plan: StepPlan,
        layers: Iterable[int] = (),
        lanes: Collection[int] = (),
        taps: Collection[int] = (),
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also logits of layers and states (see LayeredRunner)."""
        assert isinstance(self._lanes, DecoderLanes)
        self._lengths.check(plan)
        none = torch.empty(0)
        inside = Inside(dict.fromkeys(layers, none), dict.fromkeys(taps if lanes else (), none))
        with torch.inference_mode():
            logits = self._lanes.forward(plan.feeds, inside, lanes)
        self._lengths.advance(plan)
        return logits, Inner(lambda layer: self._decoder.head(inside.early[layer]), inside.taps)

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N], as the first layer reads them."""
        return self._decoder.embed(ids)

    @torch.inference_mode()
    def project(self, states: Tensor) -> Tensor:
        """Return the logits [N, V] of states [N, H] behind the final norm."""
        return self._decoder.project(states)

    def first_layers(self, count: int | None = None, *, max_lanes: int) -> DecoderRunner:
        """Return a runner of the first `count` layers, by default half of them, sharing the weights.

        Raises ModelError for a count outside 1..num_layers - 1.
        """
        count = first_count(count, len(self._decoder.layers))
        decoder, spec = self._decoder.first(count), self._spec
        graphs = None if spec.graphs is None else spec.graphs.like()
        return DecoderRunner(
            decoder,
            name=spec.name,
            max_lanes=max_lanes,
            kv_dtype=spec.kv_dtype,
            kernels=self._kernels,
            graphs=graphs,
        )


def _maker(
    spec: DecoderSpec,
    dtype: torch.dtype,
    device: torch.device,
    bits: int | None,
    options: KernelOptions,
    *,
    is_stored: bool,
) -> ProductMaker:
    """Return what makes the products of a checkpoint, with weights of `bits` bits (None: of `dtype`)."""
    times = read_times(device)
    make = (
        choose_kernels(spec.products, dtype, device, options, times)
        if bits is None
        else quantized_maker(spec, bits, device, options, is_stored=is_stored, dtype=dtype, times=times)
    )
    times.write()
    return make


class CachedLayers(Protocol):
    """Layers over KV buffers, with what comes before and behind them: a decoder or a part of a draft head."""

    @property
    def spec(self) -> DecoderSpec: ...
    @property
    def layers(self) -> tuple[DecoderLayer, ...]: ...
    @property
    def tables(self) -> tuple[RopeTable, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...

    def __call__(
        self,
        ids: Tensor,
        step: Pass[AttentionPlan] | Pass[FusedPlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None = None,
    ) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] among `ids` [N], as a Decoder does."""


class DecoderLanes:
    """Lanes that share one buffer per layer, with keys and values side by side.

    They are stored in `kv_dtype`, by default that of the decoder. With `is_fixed` the attention of a token
    has the same bits on a GPU whatever is computed beside it; on a CPU it has in any case. With
    `is_compiled` layers are computed by compiled code where there is some for the spec. With `graphs`
    steps of one token a feed, or of one with draft tokens, have shapes that these can record.
    """

    can_rollback = True

    def __init__(
        self,
        decoder: CachedLayers,
        lengths: LaneLengths,
        kv_dtype: torch.dtype | None = None,
        *,
        is_fixed: bool = False,
        is_compiled: bool = False,
        graphs: Graphs | None = None,
    ) -> None:
        spec, dtype = decoder.spec, kv_dtype or decoder.dtype
        self._decoder, self._device = decoder, decoder.device
        self._is_fixed = is_fixed and self._device.type != "cpu"
        self._switches = spec.rope_switches
        # Of one token a feed, or of one with draft tokens.
        self._steps = None if graphs is None else StaticSteps(graphs, self._device, self._switches)
        self._store = LaneStore(lengths, spare=0 if graphs is None else SPARE_ROWS)
        is_exact = decoder.dtype == dtype == torch.float32
        self._is_tiled = graphs is None and self._device.type == "cpu" and is_exact
        self._is_compiled = self._is_tiled and is_compiled and can_compile(spec)
        tile = TILE if self._is_tiled else 1
        self._buffers = [LaneBuffer(self._store, tile=tile) for _ in decoder.layers]
        self._store.buffers = self._buffers
        self._tables = BagTables(spec.num_heads, spec.scale)
        self._cells: Cells | None = None
        shape = (1, 2 * spec.num_kv_heads, 0, stored_width(dtype, spec.head_dim))
        self._like = torch.empty(shape, dtype=dtype, device=self._device)

    def forward(
        self,
        feeds: tuple[Feed, ...],
        inside: Inside | None = None,
        lanes: Collection[int] = (),
        ids: Tensor | None = None,
    ) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order.

        `inside` gets states of the pass: its taps are those of all tokens fed to `lanes`. `ids` [N] int64 on
        the device replace the tokens of the feeds.
        """
        decoder, device = self._decoder, self._device
        if inside and inside.taps and any(feed.lane not in lanes for feed in feeds):
            inside.places = upload_ints(fed_to(lanes, feeds), device)
        feeds = self._store.seat(feeds)
        rows, positions = cells_of(feeds)
        num_rows, length = max(rows) + 1, max(positions) + 1
        capacity = length if self._steps is None else roomy(length, decoder.spec.context)
        static = None
        may_be_static = self._steps is not None and inside is None
        if may_be_static and (is_decode_step(feeds) or is_drafted_step(feeds)):
            static = step_rows(feeds, self._store.spare)
            num_rows = static.num_held
        if not self._buffers[-1].holds(num_rows, capacity):  # the buffers grow in order
            for buffer in self._buffers:
                buffer.reserve(num_rows, capacity, like=self._like)
        buffers = [buffer.data for buffer in self._buffers]
        if self._steps is not None and static is not None:

            def run(inputs: StaticInputs) -> Tensor:
                ropes = tuple(table.rows(inputs.positions, inputs.factors, 0) for table in decoder.tables)
                plan = DecodePlan(inputs.rows, inputs.positions, inputs.end)
                return decoder(inputs.ids, Pass(plan, ropes), buffers, None)

            capacity = buffers[0].shape[2]  # that of `roomy`
            placed = (*buffers, *(table.reserve(capacity) for table in decoder.tables))
            return self._steps(feeds, static, placed, capacity, run, ids)
        tokens = [token for feed in feeds for token in feed.tokens]
        packed = upload_ints([*tokens, *positions, *rows], device).view(3, -1)
        places, wanted, factors = packed[1], None, None
        if trees := [feed for feed in feeds if feed.parents]:
            places = upload_ints([place for feed in feeds for place in feed.positions], device)
        if sum([feed.num_logits for feed in feeds]) < len(tokens):
            wanted = upload_ints(wanted_of(feeds), device)
        if self._switches:
            numbers = [factors_of(feed, self._switches) for feed in feeds for _ in feed.tokens]
            factors = upload_ints(numbers, device)
        ropes = tuple([table.rows(places, factors, length) for table in decoder.tables])
        if trees:
            feeds = tuple(apart(feeds))
        step: Pass[AttentionPlan] | Pass[FusedPlan]
        if packed.is_cuda:
            end = -(-length // STEP) * STEP
            step = Pass(device_plan(feeds, (packed[2], packed[1]), end, is_fixed=self._is_fixed), ropes)
        elif self._is_compiled:
            step = Pass(CompiledPlan(feeds, (packed[2], packed[1])), ropes)
        elif not self._is_tiled:
            step = Pass(SdpaPlan(feeds, (packed[2], packed[1]), decoder.dtype), ropes)
        else:
            if self._cells is None or self._cells.shape != buffers[0].shape:
                self._cells = Cells(buffers[0].shape)
            heads, windows = decoder.spec.num_heads, decoder.spec.windows
            plan = TiledPlan(feeds, rows, positions, self._cells, self._tables, heads, windows)
            step = Pass(plan, ropes)
        return decoder(packed[0] if ids is None else ids, step, buffers, wanted, inside)

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds without growing. No lane of them is empty."""
        num_rows, length = room_for(feeds := self._store.seat(feeds))
        if self._steps is not None:
            num_rows = step_rows(feeds, self._store.spare).num_held
        return self._store.holds(num_rows, length)

    def truncate(self, lane: int, length: int) -> None:
        """No-op: tokens beyond a lane's length are not read."""

    def move(self, lane: int, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy the keys and values at places `sources` of a lane to the places `targets` of it."""
        row, places = self._store.row(lane), upload_ints([*sources, *targets], self._device).view(2, -1)
        for buffer in self._buffers:
            move_tokens(buffer.data[row], *places, is_tiled=self._is_tiled)

    def fork(self, source: int, target: int) -> None:
        self._store.fork(source, target)

    def release(self, lane: int) -> None:
        self._store.wipe(lane)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._buffers)

    def free_cache(self) -> None:
        """Free the buffers; they grow again on demand."""
        self._store.free_cache()
        if self._steps is not None:
            self._steps.free()
        self._tables.clear()


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder with its weights. `tables` has the rotary embedding of each rope of the spec."""

    spec: DecoderSpec
    embeddings: Embeddings
    layers: tuple[DecoderLayer, ...]
    norm: Norm
    head: Product
    tables: tuple[RopeTable, ...]

    @property
    def dtype(self) -> torch.dtype:
        return self.embeddings.dtype

    @property
    def device(self) -> torch.device:
        return self.embeddings.device

    def first(self, count: int) -> Decoder:
        return replace(self, layers=self.layers[:count])

    def __call__(
        self,
        ids: Tensor,
        step: Pass[AttentionPlan] | Pass[FusedPlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None = None,
    ) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] (None: all) among `ids` [N].

        `buffers` are the KV buffers of the layers, [rows, 2 * Hkv, capacity, D]: their first heads hold keys,
        the others values. `inside` gets states of the pass.
        """
        states = self.embed(ids)
        if isinstance(step.plan, FusedPlan):
            states = fused_layers(self.layers, self.norm, states, step, buffers, wanted, inside)
        else:
            states = self._plain_layers(states, step, buffers, wanted, inside)
        return self.project(states)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N], as the first layer reads them."""
        states, scale = self.embeddings(ids), self.spec.embedding_scale
        return states if scale == 1.0 else states * torch.tensor(scale, dtype=states.dtype)

    def project(self, states: Tensor) -> Tensor:
        """Return the logits [N, V] of states [N, H] behind the final norm."""
        spec, logits = self.spec, self.head(states)
        if spec.logit_divisor != 1.0:
            logits = logits / spec.logit_divisor
        if spec.logit_cap is not None:
            logits = (logits / spec.logit_cap).tanh_() * spec.logit_cap
        return logits

    def _plain_layers(
        self,
        states: Tensor,
        step: Pass[AttentionPlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None,
    ) -> Tensor:
        """Return the states [R, H] of the tokens `wanted` [R] behind the final norm."""
        # In the last layer, unless it is tapped, the other tokens leave keys and values only.
        last = len(self.layers) - 1
        cut = None if inside and inside.taps_behind(last) else wanted
        for number, (layer, buffer) in enumerate(zip(self.layers, buffers, strict=True)):
            if inside:
                inside.keep(number, states, wanted)
            states = layer(states, buffer, step, cut if number == last else None)
        if inside:
            inside.keep(last + 1, states, wanted)
        states = self.norm(states)
        if inside:
            inside.keep(LAST, states, wanted)
        return states if wanted is None or cut is wanted else states[wanted]


def read_decoder(
    checkpoint: Checkpoint,
    *,
    make: ProductMaker,
    dtype: torch.dtype,
    device: torch.device,
    on_bytes: OnBytes | None = None,
    workers: int = 1,
) -> tuple[Decoder, list[str]]:
    """Load the decoder of a checkpoint (its `spec`) with products by `make`.

    So many `workers` read and make layers side by side, each on one thread. Returns the decoder and the
    names of tensors that it does not use. Raises ModelError for a damaged file, an absent tensor or one of
    another shape, and for a device with too little memory.
    """
    spec = checkpoint.spec
    assert spec is not None
    folder, progress = checkpoint.folder, Sum(on_bytes) if on_bytes else None
    kind = JoinedExpertsReader if spec.names.are_experts_joined else SafetensorsReader
    with refusing_full(device), ExitStack() as stack:
        readers: list[WeightReader] = []
        for _ in range(workers):
            report = progress.part() if progress else None
            if is_gguf(folder):
                readers.append(stack.enter_context(open_gguf(folder, dtype, device, report)))
            else:
                opened = stack.enter_context(open_tensors(checkpoint.table))
                readers.append(kind(opened, dtype, device, report))
        reader = readers[0]
        embeddings, head = make.read_ends(reader, (spec.vocab_size, spec.hidden), is_tied=spec.is_tied)
        trim_memory()
        layers = _read_layers(spec, readers, make)
        norm = read_norm(spec, reader, "model.norm", spec.hidden)
        unread = set.intersection(*(each.unread for each in readers)) - ({HEAD} if spec.is_tied else set())
        tables = tuple(RopeTable(rope, dtype, device) for rope in spec.ropes)
        decoder = Decoder(spec, embeddings, layers, norm, head, tables)
        return decoder, sorted(name for name in unread if not name.endswith("rotary_emb.inv_freq"))


def _read_layers(
    spec: DecoderSpec, readers: Sequence[WeightReader], make: ProductMaker
) -> tuple[DecoderLayer, ...]:
    """Return the layers, read by as many threads as there are readers."""
    if len(readers) == 1:
        return tuple(read_layer(spec, readers[0], make, index) for index in range(spec.num_layers))
    idle: SimpleQueue[WeightReader] = SimpleQueue()
    for reader in readers:
        idle.put(reader)

    def read(index: int) -> DecoderLayer:
        reader = idle.get()
        try:
            return read_layer(spec, reader, make, index)
        finally:
            idle.put(reader)
            trim_memory()

    # Each thread computes on one thread: two matrices side by side wait less than one by two.
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(len(readers), initializer=torch.set_num_threads, initargs=(1,))
    try:
        return tuple(pool.map(read, range(spec.num_layers)))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # the threads have set the number of later ones too
