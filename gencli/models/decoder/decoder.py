"""The decoder: embedding, layers, final norm and vocabulary projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings
from gencli.models.decoder.layers import Layer, Norm, Pass, read_layer, read_norm
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.maker import HEAD, ProductMaker
from gencli.models.decoder.rope import RopeTable
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.decoder.weights import open_weights
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.watch import OnBytes

__all__ = ["Decoder", "read_decoder"]


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
        """The dtype of states and logits."""
        return self.embeddings.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embeddings.device

    def first(self, count: int) -> Decoder:
        """Return the decoder of the first `count` layers, sharing all weights."""
        return replace(self, layers=self.layers[:count])

    def __call__(self, ids: Tensor, step: Pass, buffers: Sequence[Tensor], wanted: Tensor | None) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] (None: all) among `ids` [N].

        `buffers` are the KV buffers of the layers, [rows, 2 * Hkv, capacity, D]: their first heads hold keys,
        the others values.
        """
        spec = self.spec
        states = self.embeddings(ids)
        if spec.embedding_scale != 1.0:
            states = states * torch.tensor(spec.embedding_scale, dtype=states.dtype)
        for layer, buffer in zip(self.layers, buffers, strict=True):
            states = layer(states, buffer, step)
        logits = self.head(self.norm(states if wanted is None else states[wanted]))
        if spec.logit_divisor != 1.0:
            logits = logits / spec.logit_divisor
        if spec.logit_cap is not None:
            logits = (logits / spec.logit_cap).tanh_() * spec.logit_cap
        return logits


def read_decoder(
    checkpoint: Checkpoint,
    *,
    make: ProductMaker,
    dtype: torch.dtype,
    device: torch.device,
    on_bytes: OnBytes | None = None,
) -> tuple[Decoder, list[str]]:
    """Load the decoder of a checkpoint (its `spec`) with products by `make`.

    Returns it and the names of tensors that it does not use. Raises ModelError for a damaged file, an absent
    tensor or one of another shape, and for a device with too little memory.
    """
    spec = checkpoint.spec
    assert spec is not None
    with _refusing(device), open_weights(checkpoint, dtype, device, on_bytes) as reader:
        embeddings, head = make.read_ends(reader, (spec.vocab_size, spec.hidden), is_tied=spec.is_tied)
        layers = tuple(read_layer(spec, reader, make, index) for index in range(spec.num_layers))
        norm = read_norm(spec, reader, "model.norm", spec.hidden)
        if spec.is_tied:
            reader.unread.discard(HEAD)
        tables = tuple(RopeTable(rope, dtype, device) for rope in spec.ropes)
        made = Decoder(spec, embeddings, layers, norm, head, tables)
        return made, sorted(name for name in reader.unread if not name.endswith("rotary_emb.inv_freq"))


@contextmanager
def _refusing(device: torch.device) -> Iterator[None]:
    """Raise ModelError if the device's memory runs out in the block."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise ModelError(f"The model does not fit into the memory of {device}.") from None
