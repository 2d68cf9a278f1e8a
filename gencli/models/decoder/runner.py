"""ModelRunner of a decoder: loads a checkpoint folder without transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from gencli.errors import ModelError
from gencli.models.base import ModelSpec
from gencli.models.decoder.decoder import Decoder, read_decoder
from gencli.models.decoder.lanes import DecoderLanes
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.kv.lengths import LaneLengths
from gencli.models.lane_runner import LaneRunner, Lanes
from gencli.models.longrope import LongRopeLanes
from gencli.models.watch import OnBytes

__all__ = ["DecoderRunner"]


class DecoderRunner(LaneRunner):
    """A decoder with its KV lanes. `eos_ids` are the end-of-text ids of the model."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        name: str = "model",
        max_lanes: int = 8,
        eos_ids: tuple[int, ...] = (),
        dtype_reason: str = "",
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
            notices=notices,
            rope_switches=spec.rope_switches,
        )
        super().__init__(model, _lanes(decoder, lengths), lengths)

    @classmethod
    def load(
        cls,
        spec: DecoderSpec,
        files: Sequence[Path],
        *,
        name: str,
        dtype: torch.dtype,
        device: torch.device,
        max_lanes: int = 8,
        eos_ids: tuple[int, ...] = (),
        dtype_reason: str = "",
        on_bytes: OnBytes | None = None,
    ) -> DecoderRunner:
        """Load the weights of a decoder. Raises ModelError if they do not fit `spec`."""
        decoder, unused = read_decoder(spec, files, dtype=dtype, device=device, on_bytes=on_bytes)
        notices = (
            (f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}",) if unused else ()
        )
        return cls(
            decoder,
            name=name,
            max_lanes=max_lanes,
            eos_ids=eos_ids,
            dtype_reason=dtype_reason,
            notices=notices,
        )

    def first_layers(self, count: int | None = None, *, max_lanes: int) -> DecoderRunner:
        """Return a runner of the first `count` layers, by default half of them, sharing the weights.

        Raises ModelError for a count outside 1..num_layers - 1.
        """
        total = len(self._decoder.layers)
        count = -(-total // 2) if count is None else count
        if not 1 <= count < total:
            raise ModelError(
                f"early-exit:{count}: the model has {total} layers, so 1 to {total - 1} can be the first."
            )
        return DecoderRunner(self._decoder.first(count), name=self._spec.name, max_lanes=max_lanes)


def _lanes(decoder: Decoder, lengths: LaneLengths) -> Lanes:
    if not decoder.spec.rope_switches:
        return DecoderLanes(decoder, lengths)
    inner = lengths.like()
    return LongRopeLanes(DecoderLanes(decoder, inner), inner, decoder.spec.rope_switches)
