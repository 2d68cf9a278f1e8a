"""The decoder: embedding, layers, final norm and vocabulary projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from gencli.models.decoder.embeddings import Embeddings
from gencli.models.decoder.layers import Layer, Norm, Pass, read_layer, read_norm
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.maker import HEAD, ProductMaker
from gencli.models.decoder.rope import RopeTable
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.decoder.weights import open_weights
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

    def __call__(
        self, ids: Tensor, step: Pass, buffers: Callable[[int], Tensor], wanted: Tensor | None
    ) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] (None: all) among `ids` [N].

        `buffers` returns the KV buffer of a layer, [rows, 2 * Hkv, capacity, D]: its first heads hold keys,
        the others values.
        """
        spec = self.spec
        states = self.embeddings(ids)
        if spec.embedding_scale != 1.0:
            states = states * torch.tensor(spec.embedding_scale, dtype=states.dtype)
        for index, layer in enumerate(self.layers):
            states = layer(states, buffers(index), step)
        logits = self.head(self.norm(states if wanted is None else states[wanted]))
        if spec.logit_divisor != 1.0:
            logits = logits / spec.logit_divisor
        if spec.logit_cap is not None:
            logits = (logits / spec.logit_cap).tanh_() * spec.logit_cap
        return logits


def read_decoder(
    spec: DecoderSpec,
    files: Sequence[Path],
    *,
    make: ProductMaker,
    dtype: torch.dtype,
    device: torch.device,
    on_bytes: OnBytes | None = None,
) -> tuple[Decoder, list[str]]:
    """Load a decoder with products by `make`; return it and the names of tensors that it does not use.

    Raises ModelError for a damaged file, an absent tensor or one of another shape.
    """
    with open_weights(files, dtype, device, on_bytes) as reader:
        embeddings, head = make.read_ends(reader, (spec.vocab_size, spec.hidden), is_tied=spec.is_tied)
        layers = tuple(read_layer(spec, reader, make, index) for index in range(spec.num_layers))
        norm = read_norm(spec, reader, "model.norm", spec.hidden)
        if spec.is_tied:
            reader.unread.discard(HEAD)
        tables = tuple(RopeTable(rope, dtype, device) for rope in spec.ropes)
        made = Decoder(spec, embeddings, layers, norm, head, tables)
        return made, sorted(name for name in reader.unread if not name.endswith("rotary_emb.inv_freq"))
