"""The decoder in PyTorch alone: its runner, its KV lanes, where all feeds of a step are one row of tokens
in one forward pass, and the pass itself from embedding to vocabulary projection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.models.backend import why_no_graphs
from gencli.models.decoder.attention_plans import (
    TILE,
    AttentionPlan,
    BagTables,
    Cells,
    DecodePlan,
    DevicePlan,
    SdpaPlan,
    TiledPlan,
    device_plan,
)
from gencli.models.decoder.decoder_layers import (
    Embeddings,
    Experts,
    Layer,
    Pass,
    fused_layers,
    read_layer,
    read_norm,
)
from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.layer_kernels import Norm
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
)
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.files.gguf_header import is_gguf, kept_kinds, weight_format, widening
from gencli.models.files.gguf_weights import kept_maker, open_gguf, wide_dtype
from gencli.models.files.model_card import declared_ends
from gencli.models.files.model_files import OnBytes, Quantize, Sum, bits_of
from gencli.models.hf_runner import first_count
from gencli.models.kv.lane_buffers import (
    SPARE_ROWS,
    STEP,
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
from gencli.models.model_runner import Inner, Lanes, ModelSpec
from gencli.models.rope import LongRopeLanes, RopeTable, factors_of
from processors.graphs import Graphs, upload

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
        if graphs is None:
            graphs = make_graphs("off", why_no_graphs(spec, reads_experts=reads_experts), decoder.device)
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
            has_states=not spec.rope_switches,
            graphs=graphs,
            no_graphs=elsewhere(decoder.device)
            or why_no_graphs(spec, reads_experts=reads_experts)
            or "`cuda_graphs` is off",
            token_bytes=spec.token_numbers * decoder.dtype.itemsize,
            can_run_ahead=not spec.rope_switches and not reads_experts,
        )
        super().__init__(model, _lanes(decoder, lengths, kv_dtype, is_fixed=is_fixed, graphs=graphs), lengths)

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
        where, bits, folder = pick_device(device), checkpoint.bits or bits_of(quantize), checkpoint.folder
        is_kept = weight_format(folder, quantize, dtype=dtype, device=where.type) == "kept"
        is_narrow = is_kept or bits is not None
        number, reason = pick_dtype(dtype, device=where, stored=checkpoint.stored, is_quantized=is_narrow)
        kv_number, options = pick_kv_dtype(kv_dtype, number), kernels or KernelOptions()
        graphs = _graphs(cuda_graphs, checkpoint.spec, number, where, options)
        kept = kept_maker(folder, options, where, number) if is_kept else None
        make = kept or _maker(checkpoint, number, where, bits, options)
        workers = min(_MAX_WORKERS, torch.get_num_threads()) if where.type == "cpu" else 1
        decoder, unused = read_decoder(
            checkpoint, make=make, dtype=number, device=where, on_bytes=on_bytes, workers=workers
        )
        keeps_codes = checkpoint.stored == "MXFP4" and make.stacks_experts and number.itemsize == 2
        kept_format = f"int{bits}" if bits is not None else checkpoint.stored if keeps_codes else ""
        notices = _widened(folder, number, where, is_kept=is_kept) if bits is None else ()
        unused_notices = (
            [f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}"] if unused else []
        )
        return cls(
            decoder,
            name=str(folder),
            max_lanes=max_lanes,
            eos_ids=declared_ends(folder),
            dtype_reason=reason,
            backend=backend,
            quantization=" and ".join(kept_kinds(folder)) if is_kept else kept_format,
            kernels=make,
            kv_dtype=kv_number,
            notices=(*notices, *_rounded(make), *unused_notices),
            graphs=graphs,
        )

    def forward_layers(
        self, plan: StepPlan, layers: Iterable[int], lanes: Collection[int] = ()
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also logits of layers and last states (see LayeredRunner)."""
        assert isinstance(self._lanes, DecoderLanes)
        self._lengths.check(plan)
        inside = Inside(dict.fromkeys(layers, torch.empty(0)))
        with torch.inference_mode():
            logits = self._lanes.forward(plan.feeds, inside, lanes)
        self._lengths.advance(plan)
        return logits, Inner(lambda layer: self._decoder.head(inside.early[layer]), inside.last)

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


def _widened(folder: Path, dtype: torch.dtype, device: torch.device, *, is_kept: bool) -> tuple[str, ...]:
    """Return what to say of the weights of a GGUF file that take another format in memory."""
    if not is_gguf(folder):
        return ()
    wide = wide_dtype() if is_kept and device.type == "cpu" else dtype
    return widening(folder, str(wide).removeprefix("torch."), wide.itemsize, is_kept=is_kept)


def _rounded(make: ProductMaker) -> Iterator[str]:
    if make.rounds_activations:
        yield (
            "With weights of 8 bits this CPU rounds activations to 8 bits too, with one scale for each row; "
            "docs/models.md shows what real models lose."
        )


def _graphs(
    choice: CudaGraphs, spec: DecoderSpec, dtype: torch.dtype, device: torch.device, options: KernelOptions
) -> Graphs | None:
    reads_experts = spec.experts is not None and not can_stack(dtype, device, options)
    return make_graphs(choice, why_no_graphs(spec, reads_experts=reads_experts), device)


def _maker(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, bits: int | None, options: KernelOptions
) -> ProductMaker:
    """Return what makes the products of a checkpoint, with weights of `bits` bits (None: of `dtype`)."""
    assert checkpoint.spec is not None
    times, is_stored = read_times(device), checkpoint.bits is not None
    make = (
        choose_kernels(checkpoint.spec.products, dtype, device, options, times)
        if bits is None
        else quantized_maker(
            checkpoint.spec, bits, device, options, is_stored=is_stored, dtype=dtype, times=times
        )
    )
    times.write()
    return make


def _lanes(decoder: Decoder, lengths: LaneLengths, kv_dtype: torch.dtype | None, **options: Any) -> Lanes:
    if not decoder.spec.rope_switches:
        return DecoderLanes(decoder, lengths, kv_dtype, **options)
    inner = lengths.like()
    lanes = DecoderLanes(decoder, inner, kv_dtype, **options)
    return LongRopeLanes(lanes, inner, decoder.spec.rope_switches)


class DecoderLanes:
    """Lanes that share one buffer per layer, with keys and values side by side.

    They are stored in `kv_dtype`, by default that of the decoder. With `is_fixed` the attention of a token
    has the same bits on a GPU whatever is computed beside it; on a CPU it has in any case. With `graphs`
    steps of one token a feed, or of one with draft tokens, have shapes that these can record.
    """

    can_rollback = True

    def __init__(
        self,
        decoder: Decoder,
        lengths: LaneLengths,
        kv_dtype: torch.dtype | None = None,
        *,
        is_fixed: bool = False,
        graphs: Graphs | None = None,
    ) -> None:
        self._decoder, self._is_fixed = decoder, is_fixed and decoder.device.type != "cpu"
        self._switches = decoder.spec.rope_switches
        # Of one token a feed, or of one with draft tokens.
        self._steps = None
        if graphs is not None:
            self._steps = StaticSteps(graphs, decoder.device, self._switches)
        self._store = LaneStore(lengths, spare=0 if graphs is None else SPARE_ROWS)
        formats = {decoder.dtype, kv_dtype or decoder.dtype}
        self._is_tiled = graphs is None and decoder.device.type == "cpu" and formats == {torch.float32}
        tile = TILE if self._is_tiled else 1
        self._buffers = [LaneBuffer(self._store.rows, tile=tile) for _ in decoder.layers]
        self._store.buffers = self._buffers
        spec = decoder.spec
        self._tables = BagTables(spec.num_heads, spec.scale)
        self._cells: Cells | None = None
        self._like = torch.empty(
            1,
            2 * spec.num_kv_heads,
            0,
            stored_width(kv_dtype or decoder.dtype, spec.head_dim),
            dtype=kv_dtype or decoder.dtype,
            device=decoder.device,
        )

    def forward(
        self,
        feeds: tuple[Feed, ...],
        inside: Inside | None = None,
        lanes: Collection[int] = (),
        ids: Tensor | None = None,
    ) -> Tensor:
        """Feed the lanes; return the wanted logits [R, V] in feed order.

        `inside` gets states of the pass: the last ones are those of all tokens fed to `lanes`. `ids` [N]
        int64 on the device replace the tokens of the feeds.
        """
        if inside and lanes:
            inside.places = upload(fed_to(lanes, feeds), self._decoder.device)
        feeds = self._store.seat(feeds)
        num_rows, length = room_for(feeds)
        capacity = length if self._steps is None else roomy(length, self._decoder.spec.context)
        static = None
        may_be_static = self._steps is not None and inside is None
        if may_be_static and (is_decode_step(feeds) or is_drafted_step(feeds)):
            static = step_rows(feeds, self._store.rows.spare)
            num_rows = static.num_held
        buffers = [buffer.reserve(num_rows, capacity, like=self._like) for buffer in self._buffers]
        if self._steps is not None and static is not None:
            capacity = buffers[0].shape[2]  # that of `roomy`
            placed = (*buffers, *(table.reserve(capacity) for table in self._decoder.tables))
            return self._steps(
                feeds, static, placed, capacity, lambda inputs: self._run_static(inputs, buffers), ids
            )
        held = cells_of(feeds)
        rows, positions = zip(*held, strict=True)
        tokens = [token for feed in feeds for token in feed.tokens]
        packed = upload([tokens, positions, rows], self._decoder.device)
        wanted = wanted_of(feeds)
        if not wanted:
            wanted_rows: Tensor | None = packed.new_empty(0)
        else:
            wanted_rows = None if len(wanted) == len(tokens) else upload(wanted, self._decoder.device)
        ropes = self._ropes(feeds, packed[1], length)
        step: Pass[AttentionPlan] | Pass[DevicePlan]
        if packed.is_cuda:
            end = -(-length // STEP) * STEP
            step = Pass(device_plan(feeds, (packed[2], packed[1]), end, is_fixed=self._is_fixed), ropes)
        else:
            step = Pass(self._plan(feeds, held, packed, buffers[0]), ropes)
        return self._decoder(packed[0] if ids is None else ids, step, buffers, wanted_rows, inside)

    def _run_static(self, inputs: StaticInputs, buffers: Sequence[Tensor]) -> Tensor:
        """Run the decoder on static tensors; return the logits [rows, V]."""
        tables = self._decoder.tables
        ropes = tuple(table.rows(inputs.positions, inputs.factors, 0) for table in tables)
        plan = DecodePlan(inputs.rows, inputs.positions, inputs.end)
        return self._decoder(inputs.ids, Pass(plan, ropes), buffers, None)

    def holds(self, feeds: tuple[Feed, ...]) -> bool:
        """Return whether the buffers hold these feeds without growing. No lane of them is empty."""
        num_rows, length = room_for(feeds := self._store.seat(feeds))
        if self._steps is not None:
            num_rows = step_rows(feeds, self._store.rows.spare).num_held
        return self._store.holds(num_rows, length)

    def _plan(
        self, feeds: tuple[Feed, ...], held: Sequence[tuple[int, int]], packed: Tensor, buffer: Tensor
    ) -> AttentionPlan:
        """Return the attention of a pass without kernels of our own; `packed` has ids, positions and rows."""
        if not self._is_tiled:
            return SdpaPlan(feeds, (packed[2], packed[1]), self._decoder.dtype)
        if self._cells is None or self._cells.shape != buffer.shape:
            self._cells = Cells(buffer.shape)
        spec = self._decoder.spec
        return TiledPlan(feeds, held, self._cells, self._tables, spec.num_heads, spec.windows)

    def truncate(self, lane: int, length: int) -> None:
        """No-op: tokens beyond a lane's length are not read."""

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

    def _ropes(
        self, feeds: Sequence[Feed], positions: Tensor, length: int
    ) -> tuple[tuple[Tensor, Tensor], ...]:
        factors = None
        if self._switches:
            numbers = [factors_of(feed, self._switches) for feed in feeds for _ in feed.tokens]
            factors = upload(numbers, positions.device)
        return tuple(table.rows(positions, factors, length) for table in self._decoder.tables)


@dataclass(slots=True, eq=False)
class Inside:
    """States that a pass leaves for its caller.

    `early` gets the states [R, H] of the tokens with logits behind each layer that it names, by the number of
    layers before it: 0 is the embedding. `last` gets the states [S, H] of the tokens `places` [S] behind the
    final norm, if these are set.
    """

    early: dict[int, Tensor]
    places: Tensor | None = None
    last: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder with its weights. `tables` has the rotary embedding of each rope of the spec."""

    spec: DecoderSpec
    embeddings: Embeddings
    layers: tuple[Layer, ...]
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
        step: Pass[AttentionPlan] | Pass[DevicePlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None = None,
    ) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] (None: all) among `ids` [N].

        `buffers` are the KV buffers of the layers, [rows, 2 * Hkv, capacity, D]: their first heads hold keys,
        the others values. `inside` gets states of the pass.
        """
        spec, early = self.spec, inside.early if inside else None
        states = self.embeddings(ids)
        if spec.embedding_scale != 1.0:
            states = states * torch.tensor(spec.embedding_scale, dtype=states.dtype)
        if isinstance(step.plan, DevicePlan):
            states, last_states = fused_layers(
                self.layers,
                self.norm,
                states,
                step,
                buffers,
                wanted,
                early=early,
                places=inside.places if inside else None,
            )
            if inside:
                inside.last = last_states
        else:
            states = self._plain_layers(states, step, buffers, wanted, inside)
        logits = self.head(states)
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
        early = inside.early if inside else None
        *first, last = zip(self.layers, buffers, strict=True)
        for number, (layer, buffer) in enumerate(first):
            if early and number in early:
                early[number] = states if wanted is None else states[wanted]
            states = layer(states, buffer, step)
        if early and len(first) in early:
            early[len(first)] = states if wanted is None else states[wanted]
        layer, buffer = last
        if inside and inside.places is not None:
            states = self.norm(layer(states, buffer, step))
            inside.last = states[inside.places]
            return states if wanted is None else states[wanted]
        # The other tokens leave keys and values only.
        return self.norm(layer(states, buffer, step, wanted))


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
    progress = Sum(on_bytes) if on_bytes else None
    with refusing_full(device), ExitStack() as stack:
        readers = [
            stack.enter_context(
                open_weights(checkpoint, dtype, device, progress.part() if progress else None)
            )
            for _ in range(workers)
        ]
        reader = readers[0]
        embeddings, head = make.read_ends(reader, (spec.vocab_size, spec.hidden), is_tied=spec.is_tied)
        layers = _read_layers(spec, readers, make)
        norm = read_norm(spec, reader, "model.norm", spec.hidden)
        unread = set.intersection(*(opened.unread for opened in readers)) - (
            {HEAD} if spec.is_tied else set()
        )
        tables = tuple(RopeTable(rope, dtype, device) for rope in spec.ropes)
        decoder = Decoder(spec, embeddings, layers, norm, head, tables)
        return decoder, sorted(name for name in unread if not name.endswith("rotary_emb.inv_freq"))


def _read_layers(spec: DecoderSpec, readers: Sequence[WeightReader], make: ProductMaker) -> tuple[Layer, ...]:
    """Return the layers, read by as many threads as there are readers."""
    if len(readers) == 1:
        return tuple(read_layer(spec, readers[0], make, index) for index in range(spec.num_layers))
    idle: SimpleQueue[WeightReader] = SimpleQueue()
    for reader in readers:
        idle.put(reader)

    def read(index: int) -> Layer:
        reader = idle.get()
        try:
            return read_layer(spec, reader, make, index)
        finally:
            idle.put(reader)

    # Each thread computes on one thread: two matrices side by side wait less than one by two.
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(len(readers), initializer=torch.set_num_threads, initargs=(1,))
    try:
        return tuple(pool.map(read, range(spec.num_layers)))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # the threads have set the number of later ones too


@contextmanager
def open_weights(
    checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[WeightReader]:
    """Open the files of a checkpoint for reading."""
    if is_gguf(checkpoint.folder):
        with open_gguf(checkpoint.folder, dtype, device, on_bytes) as gguf_reader:
            yield gguf_reader
        return
    with open_tensors(checkpoint.table) as opened:
        is_joined = checkpoint.spec is not None and checkpoint.spec.names.are_experts_joined
        reader = JoinedExpertsReader if is_joined else SafetensorsReader
        yield reader(opened, dtype, device, on_bytes)
