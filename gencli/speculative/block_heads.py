"""Draft heads that propose a block of tokens in one pass: DFlash (arXiv 2602.06036) and DSpark, which adds to
it how likely a token follows another.

The context is one feature for each token before the newest one. A block is the newest token and masks behind
it. Queries are those of the block; keys and values are those of the context, which are kept, and those of the
block, which are not. Inside of the block attention is not causal, but in layers with a sliding window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from gencli.models.decoder.attention_plans import AttentionPlan, Scoring, SdpaPlan
from gencli.models.decoder.decoder_layers import DecoderLayer, Pass
from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.layer_kernels import Norm
from gencli.models.decoder.products.dense_products import Product
from gencli.models.rope import RopeTable
from gencli.speculative.head_files import Markov


class ContextPlan(SdpaPlan):
    """The plan of a pass that writes keys and values, and attends to nothing."""

    def attend(self, qkv: Tensor, buffer: Tensor, **how: Unpack[Scoring]) -> Tensor:
        return qkv[:0]


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """The bias of a draft's logits from the token e before it, e = before(token) [r]:

        vanilla: after(e)
        gated: after(sigmoid(mix([h, e])) * e)
        rnn: gate, new, out = mix([s, e, h]); share = sigmoid(gate); s = share * s + (1 - share) * tanh(new);
             after(tanh(out))

    h [H] is the draft's state behind the final norm; s [r] begins with zeros in each block.
    """

    kind: Markov
    before: Callable[[Tensor], Tensor]
    after: Product
    rank: int
    mix: Product | None = None

    def __call__(self, tokens: Tensor, hidden: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return biases [R, Vd] and the next states [R, r], for the tokens [R] before and h [R, H]."""
        latent = self.before(tokens)
        if self.mix is None:
            return self.after(latent), state
        if self.kind == "gated":
            return self.after(self.mix(torch.cat((hidden, latent), -1)).sigmoid() * latent), state
        gate, new, out = self.mix(torch.cat((state, latent, hidden), -1)).chunk(3, -1)
        share = gate.sigmoid()
        state = share * state + (1 - share) * new.tanh()
        return self.after(out.tanh()), state


@dataclass(frozen=True, slots=True)
class BlockHead:
    """DFlash and DSpark. `condense` makes a feature [N, H] of the states [N, Ht] of each tap.

    Logits of the draft vocabulary are project(states) [R, Vd], and `spread` places them among all V tokens.
    Drafts come from all places of a block with `samples_anchor`, else from its masks.
    """

    taps: tuple[int, ...]
    spec: DecoderSpec
    layers: tuple[DecoderLayer, ...]
    tables: tuple[RopeTable, ...]
    condense: Callable[[tuple[Tensor, ...]], Tensor]
    embed: Callable[[Tensor], Tensor]
    norm: Norm
    project: Callable[[Tensor], Tensor]
    spread: Callable[[Tensor], Tensor]
    vocab_size: int
    block_size: int
    mask_id: int
    samples_anchor: bool
    is_causal: bool
    dtype: torch.dtype
    device: torch.device
    markov: MarkovHead | None = None

    @property
    def most(self) -> int:
        """The most drafts of a step."""
        return self.block_size - self.first

    @property
    def first(self) -> int:
        """The place in a block of the first draft."""
        return 0 if self.samples_anchor else 1

    def keep(self, features: Tensor, step: Pass[AttentionPlan], buffers: Sequence[Tensor]) -> None:
        """Write keys and values of features [N, H] of a context to the buffers; `step` has a ContextPlan."""
        for layer, buffer in zip(self.layers, buffers, strict=True):
            layer.attention(layer.attention.qkv(features), buffer, step)

    def __call__(
        self, ids: Tensor, step: Pass[AttentionPlan], buffers: Sequence[Tensor], wanted: Tensor
    ) -> Tensor:
        """Return the states [R, H] behind the final norm of the tokens `wanted` [R] of blocks `ids` [N]."""
        states = self.embed(ids)
        for number, (layer, buffer) in enumerate(zip(self.layers, buffers, strict=True)):
            is_last = number == len(self.layers) - 1
            states = layer(states, buffer, step, wanted if is_last else None)
        return self.norm(states)
