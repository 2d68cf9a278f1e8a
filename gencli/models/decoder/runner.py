"""ModelRunner of a decoder: loads a checkpoint folder without transformers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gencli.core.step import StepPlan
from gencli.models.backend import why_no_graphs
from gencli.models.base import Inner, ModelSpec
from gencli.models.cuda_graphs import CudaGraphs, elsewhere, make_graphs
from gencli.models.decoder.decoder import Decoder, Inside, read_decoder
from gencli.models.decoder.lanes import DecoderLanes
from gencli.models.decoder.layers import Experts
from gencli.models.decoder.products.maker import KernelOptions, ProductMaker, can_stack, choose_kernels
from gencli.models.decoder.products.quantized import quantized_maker
from gencli.models.decoder.products.times import read_times
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.device import pick_device, pick_dtype, pick_kv_dtype
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.files.quantization import Quantize, bits_of
from gencli.models.files.vocabulary import declared_ends
from gencli.models.first_layers import first_count
from gencli.models.gguf.head import is_gguf
from gencli.models.gguf.maker import kept_maker, wide_dtype
from gencli.models.gguf.plan import kept_kinds, weight_format, widening
from gencli.models.kv.lengths import LaneLengths
from gencli.models.lane_runner import LaneRunner, Lanes
from gencli.models.longrope import LongRopeLanes
from gencli.models.watch import OnBytes
from processors.graphs import Graphs

__all__ = ["DecoderRunner"]

_MOST_WORKERS = 4  # that load a model; each holds a matrix beside those that are done


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
        workers = min(_MOST_WORKERS, torch.get_num_threads()) if where.type == "cpu" else 1
        decoder, unused = read_decoder(
            checkpoint, make=make, dtype=number, device=where, on_bytes=on_bytes, workers=workers
        )
        kept_format = _kept_format(checkpoint, number, bits, make)
        notices = _widened(folder, number, where, is_kept=is_kept) if bits is None else ()
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
            notices=(*notices, *_rounded(make), *_unused(unused)),
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
        decoder, own = self._decoder.first(count), self._spec
        graphs = None if own.graphs is None else own.graphs.like()
        return DecoderRunner(
            decoder,
            name=own.name,
            max_lanes=max_lanes,
            kv_dtype=own.kv_dtype,
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
    """Yield what to say of activations that are rounded like the weights."""
    if make.rounds_activations:
        yield (
            "With weights of 8 bits this CPU rounds activations to 8 bits too, with one scale for each row; "
            "docs/quantization.md shows what real models lose."
        )


def _unused(names: Sequence[str]) -> Iterator[str]:
    """Yield what to say of tensors that the decoder does not use."""
    if names:
        yield f"{len(names)} tensors of the checkpoint are not used, such as {names[0]}"


def _graphs(
    choice: CudaGraphs, spec: DecoderSpec, dtype: torch.dtype, device: torch.device, options: KernelOptions
) -> Graphs | None:
    """Return what runs the decode steps, as make_graphs, for a decoder that is not loaded yet."""
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


def _kept_format(checkpoint: Checkpoint, dtype: torch.dtype, bits: int | None, make: ProductMaker) -> str:
    """Return the number format of weights that are kept in few bits; "" if they are widened."""
    if bits is not None:
        return f"int{bits}"
    keeps_codes = checkpoint.stored == "MXFP4" and make.stacks_experts and dtype.itemsize == 2
    return checkpoint.stored if keeps_codes else ""


def _lanes(decoder: Decoder, lengths: LaneLengths, kv_dtype: torch.dtype | None, **options: Any) -> Lanes:
    if not decoder.spec.rope_switches:
        return DecoderLanes(decoder, lengths, kv_dtype, **options)
    inner = lengths.like()
    lanes = DecoderLanes(decoder, inner, kv_dtype, **options)
    return LongRopeLanes(lanes, inner, decoder.spec.rope_switches)
