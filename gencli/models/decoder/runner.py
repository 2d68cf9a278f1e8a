"""ModelRunner of a decoder: loads a checkpoint folder without transformers."""

from __future__ import annotations

import torch

from gencli.errors import ModelError
from gencli.models.base import ModelSpec
from gencli.models.decoder.decoder import Decoder, read_decoder
from gencli.models.decoder.lanes import DecoderLanes
from gencli.models.decoder.products.maker import KernelOptions, ProductMaker, choose_kernels
from gencli.models.decoder.products.quantized import quantized_maker
from gencli.models.decoder.products.times import read_times
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.device import pick_device, pick_dtype, pick_kv_dtype
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.files.quantization import Quantize, bits_of
from gencli.models.files.vocabulary import declared_ends
from gencli.models.first_layers import first_count
from gencli.models.gguf.head import is_gguf
from gencli.models.gguf.reader import widening
from gencli.models.kv.lengths import LaneLengths
from gencli.models.lane_runner import LaneRunner, Lanes
from gencli.models.longrope import LongRopeLanes
from gencli.models.watch import OnBytes

__all__ = ["DecoderRunner"]


class DecoderRunner(LaneRunner):
    """A decoder with its KV lanes.

    `eos_ids` are the end-of-text ids of the model, `kernels` made its products.
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
    ) -> None:
        spec = decoder.spec
        lengths = LaneLengths(max_lanes=max_lanes, context=spec.context, num_ids=spec.vocab_size)
        self._decoder = decoder
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
            has_invariant_rows=kernels is not None and kernels.is_invariant and decoder.device.type == "cpu",
            kv_dtype=kv_dtype or decoder.dtype,
            notices=notices,
            rope_switches=spec.rope_switches,
        )
        super().__init__(model, _lanes(decoder, lengths, kv_dtype), lengths)

    @classmethod
    def load(
        cls,
        spec: DecoderSpec,
        checkpoint: Checkpoint,
        *,
        dtype: str = "auto",
        device: str = "auto",
        max_lanes: int = 8,
        backend: str = "native",
        quantize: Quantize = "none",
        kernels: KernelOptions | None = None,
        kv_dtype: str = "auto",
        on_bytes: OnBytes | None = None,
    ) -> DecoderRunner:
        """Load the weights of a checkpoint for the decoder `spec`.

        `dtype` and `device` are as for HFRunner.load. Weights are quantized if `quantize` says so or if the
        checkpoint's are. `on_bytes` is called with the loaded and the total bytes. Raises UsageError for an
        unknown dtype or device, ModelError for weights that do not fit, `kernels` that this machine does not
        have, or a `kv_dtype` that is not smaller than the dtype.
        """
        where, bits = pick_device(device), checkpoint.bits or bits_of(quantize)
        number, reason = pick_dtype(
            dtype, device=where, stored=checkpoint.stored, is_quantized=bits is not None
        )
        kv_number, options = pick_kv_dtype(kv_dtype, number), kernels or KernelOptions()
        times, is_stored = read_times(), checkpoint.bits is not None
        make = (
            choose_kernels(spec.products, number, where, options, times)
            if bits is None
            else quantized_maker(spec, bits, where, options, is_stored=is_stored, times=times)
        )
        times.write()
        try:
            decoder, unused = read_decoder(
                spec, checkpoint.files, make=make, dtype=number, device=where, on_bytes=on_bytes
            )
        except torch.OutOfMemoryError:
            raise ModelError(f"The model does not fit into the memory of {where}.") from None
        is_widened = bits is None and is_gguf(checkpoint.folder)
        notices = widening(checkpoint.folder, number) if is_widened else ()
        if unused:
            notices += (f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}",)
        return cls(
            decoder,
            name=str(checkpoint.folder),
            max_lanes=max_lanes,
            eos_ids=declared_ends(checkpoint.folder),
            dtype_reason=reason,
            backend=backend,
            quantization="" if bits is None else f"int{bits}",
            kernels=make,
            kv_dtype=kv_number,
            notices=notices,
        )

    def first_layers(self, count: int | None = None, *, max_lanes: int) -> DecoderRunner:
        """Return a runner of the first `count` layers, by default half of them, sharing the weights.

        Raises ModelError for a count outside 1..num_layers - 1.
        """
        count = first_count(count, len(self._decoder.layers))
        decoder, own = self._decoder.first(count), self._spec
        return DecoderRunner(decoder, name=own.name, max_lanes=max_lanes, kv_dtype=own.kv_dtype)


def _lanes(decoder: Decoder, lengths: LaneLengths, kv_dtype: torch.dtype | None) -> Lanes:
    if not decoder.spec.rope_switches:
        return DecoderLanes(decoder, lengths, kv_dtype)
    inner = lengths.like()
    return LongRopeLanes(DecoderLanes(decoder, inner, kv_dtype), inner, decoder.spec.rope_switches)
