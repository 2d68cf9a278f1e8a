"""Layers of the decoder: attention, feed-forward block, mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gencli.models.decoder.activations import ACTIVATIONS
from gencli.models.decoder.attention import AttentionPlan, DevicePlan, Scoring
from gencli.models.decoder.norms import Norm, normalize_heads, residual_sum
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.grouped import GroupedProduct
from gencli.models.decoder.products.maker import ProductMaker
from gencli.models.decoder.reader import WeightReader
from gencli.models.decoder.rope import rotate
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.decoder.stacked_experts import StackedExperts
from gencli.models.kv.formats import as_stored

__all__ = ["Experts", "Layer", "Pass", "read_layer", "read_norm"]

P = TypeVar("P", AttentionPlan, DevicePlan)


@dataclass(frozen=True, slots=True)
class Pass(Generic[P]):
    """Inputs of all layers in a pass over N tokens. `ropes` are cosines and sines for each of the spec's."""

    plan: P
    ropes: tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True, slots=True)
class _Attention:
    """Self-attention of one layer. `qkv` gives queries, keys and values of all heads in one product."""

    spec: DecoderSpec
    index: int
    qkv: Product
    out: Product
    query_norm: Norm | None
    key_norm: Norm | None
    sinks: Tensor | None

    def __call__(
        self, states: Tensor, buffer: Tensor, step: Pass[AttentionPlan], wanted: Tensor | None
    ) -> Tensor:
        """Return [R, H] for `states` [N, H]; write keys and values to `buffer` [rows, 2 * Hkv, C, D]."""
        spec = self.spec
        heads, kv_heads = spec.num_heads, spec.num_kv_heads
        made = self.qkv(states).view(len(states), heads + 2 * kv_heads, spec.head_dim)
        if self.query_norm is not None and self.key_norm is not None:
            norms = (self.query_norm, self.key_norm)
            normalize_heads(made, heads, kv_heads, norms, is_whole=spec.qk_norm == "whole")
        rope = spec.layer_ropes[self.index]
        if rope is not None:
            rotate(made[:, : heads + kv_heads], *step.ropes[rope])
        step.plan.store(as_stored(made[:, heads:], buffer.dtype), buffer)
        mixed = step.plan.attend(made, buffer, **self.scoring)
        return self.out(mixed if wanted is None else mixed[wanted])

    @property
    def scoring(self) -> Scoring:
        """Parameters of the layer's attention."""
        spec = self.spec
        window = spec.windows[self.index]
        return {"window": window, "scale": spec.scale, "cap": spec.score_cap, "sinks": self.sinks}


@dataclass(frozen=True, slots=True)
class _Mlp:
    """Gated feed-forward block: down(act(gate(x), up(x))). `gate_up` is one product for both."""

    gate_up: Product
    down: Product
    act: Callable[[Tensor, Tensor, float], Tensor]
    limit: float

    def __call__(self, states: Tensor) -> Tensor:
        """Return [N, H] for `states` [N, H]."""
        gate, up = self.gate_up(states).chunk(2, -1)
        return self.down(self.act(gate, up, self.limit))


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture of experts: the best `used` of them for each token, weighted by the router's softmax."""

    router: Product
    experts: tuple[_Mlp, ...]
    used: int
    is_normalized: bool

    def __call__(self, states: Tensor) -> Tensor:
        """Return [N, H] for `states` [N, H]."""
        shares = self.router(states).softmax(-1, dtype=torch.float32)
        weights, chosen = shares.topk(self.used, -1)
        if self.is_normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(states.dtype)
        mixed = torch.zeros_like(states)
        experts, order = chosen.flatten().sort(stable=True)
        numbers = torch.arange(len(self.experts) + 1, device=states.device)
        tokens, ordered = order // self.used, weights.flatten()[order, None]
        ends = torch.searchsorted(experts, numbers).tolist()  # all that the host reads of the choice
        for expert, (first, end) in zip(self.experts, pairwise(ends), strict=True):
            if first < end:
                some = tokens[first:end]
                mixed.index_add_(0, some, expert(states[some]) * ordered[first:end])
        return mixed


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: attention and feed-forward block, each with a norm before or after it, or both."""

    attention: _Attention
    mlp: _Mlp | Experts | StackedExperts
    norms: tuple[Norm | None, Norm | None, Norm | None, Norm | None]
    residual_scale: float

    def __call__(
        self, states: Tensor, buffer: Tensor, step: Pass[AttentionPlan], wanted: Tensor | None = None
    ) -> Tensor:
        """Return the states after this layer, [R, H], of the tokens `wanted` [R] among `states` [N, H].

        None stands for all tokens. Keys and values are written for all of them in any case.
        """
        before, after, mlp_before, mlp_after = self.norms
        mixed = self.attention(states if before is None else before(states), buffer, step, wanted)
        if wanted is not None:
            states = states[wanted]
        states = residual_sum(states, mixed if after is None else after(mixed), self.residual_scale)
        made = self.mlp(states if mlp_before is None else mlp_before(states))
        return residual_sum(states, made if mlp_after is None else mlp_after(made), self.residual_scale)


def read_norm(spec: DecoderSpec, reader: WeightReader, name: str, width: int) -> Norm:
    """Return the norm stored as `name`.weight."""
    weight = reader.read(f"{name}.weight", (width,))
    if spec.norm_offset:  # the sum has more digits than 16 bits hold
        weight = weight.float() + spec.norm_offset
    return Norm(weight, spec.norm_eps)


def read_layer(spec: DecoderSpec, reader: WeightReader, make: ProductMaker, index: int) -> Layer:
    """Return a layer with its weights and the products that `make` makes of them."""
    prefix = f"model.layers.{index}."
    names = spec.names

    def norm(name: str | None) -> Norm | None:
        return None if name is None else read_norm(spec, reader, prefix + name, spec.hidden)

    mlp: _Mlp | Experts | StackedExperts
    if index in spec.expert_layers:
        mlp = _read_experts(spec, reader, make, prefix)
    else:
        gate_up = [prefix + name for name in names.gate_up]
        down = f"{prefix}mlp.down_proj"
        mlp = _read_mlp(spec, reader, make, gate_up, down, spec.inner, has_bias=spec.has_mlp_bias)
    return Layer(
        _read_attention(spec, reader, make, index, prefix),
        mlp,
        (
            norm(names.attention_norm),
            norm(names.attention_post_norm),
            norm(names.mlp_norm),
            norm(names.mlp_post_norm),
        ),
        spec.residual_scale,
    )


def _read_attention(
    spec: DecoderSpec, reader: WeightReader, make: ProductMaker, index: int, prefix: str
) -> _Attention:
    heads, kv_heads, width = spec.num_heads, spec.num_kv_heads, spec.head_dim
    sizes = (heads * width, kv_heads * width) if spec.qk_norm == "whole" else (width, width)
    norms: list[Norm | None] = [None, None]
    if spec.qk_norm is not None:
        norms = [
            read_norm(spec, reader, f"{prefix}self_attn.{name}_norm", size)
            for name, size in zip("qk", sizes, strict=True)
        ]
    return _Attention(
        spec,
        index,
        _product(
            reader,
            make,
            [prefix + name for name in spec.names.qkv],
            ((heads + 2 * kv_heads) * width, spec.hidden),
            has_bias=spec.has_qkv_bias,
        ),
        _product(
            reader,
            make,
            [f"{prefix}self_attn.o_proj"],
            (spec.hidden, heads * width),
            has_bias=spec.has_out_bias,
        ),
        norms[0],
        norms[1],
        reader.read(f"{prefix}self_attn.sinks", (heads,)).float() if spec.has_sinks else None,
    )


def _read_mlp(
    spec: DecoderSpec,
    reader: WeightReader,
    make: ProductMaker,
    gate_up: list[str],
    down: str,
    width: int,
    *,
    has_bias: bool,
) -> _Mlp:
    return _Mlp(
        _product(reader, make, gate_up, (2 * width, spec.hidden), has_bias=has_bias),
        _product(reader, make, [down], (spec.hidden, width), has_bias=has_bias),
        ACTIVATIONS[spec.activation],
        spec.gate_limit,
    )


def _read_experts(
    spec: DecoderSpec, reader: WeightReader, make: ProductMaker, prefix: str
) -> Experts | StackedExperts:
    experts, names = spec.experts, spec.names
    assert experts is not None
    own = [f"{prefix}{names.experts}.{number}." for number in range(experts.count)]
    gate, up, down = names.expert
    has_bias, width = experts.has_bias or spec.has_mlp_bias, experts.width
    chooser = prefix + names.router
    router = make(
        reader.read(f"{chooser}.weight", (experts.count, spec.hidden)),
        reader.read(f"{chooser}.bias", (experts.count,)) if experts.has_bias else None,
    )
    if make.stacks_experts:
        both, all_down = [one + name for one in own for name in (gate, up)], [one + down for one in own]
        return StackedExperts(
            router,
            _stacked(reader, make, both, (experts.count, 2 * width, spec.hidden), has_bias=has_bias),
            _stacked(reader, make, all_down, (experts.count, spec.hidden, width), has_bias=has_bias),
            experts,
            spec.activation,
            spec.gate_limit,
        )
    made = (
        _read_mlp(spec, reader, make, [one + gate, one + up], one + down, width, has_bias=has_bias)
        for one in own
    )
    return Experts(router, tuple(made), experts.used, experts.is_normalized)


def _stacked(
    reader: WeightReader,
    make: ProductMaker,
    names: list[str],
    shape: tuple[int, int, int],
    *,
    has_bias: bool,
) -> GroupedProduct:
    """Return the products of E experts, whose joined weights are [E, out, in]."""
    count, outputs, inputs = shape
    joined = make.weights_of(reader, [f"{name}.weight" for name in names], (count * outputs, inputs))
    bias = None
    if has_bias:
        bias = reader.joined([f"{name}.bias" for name in names], (count * outputs,)).view(count, outputs)
    return GroupedProduct(*(part.view(count, outputs, *part.shape[1:]) for part in joined), bias=bias)


def _product(
    reader: WeightReader, make: ProductMaker, names: list[str], shape: tuple[int, int], *, has_bias: bool
) -> Product:
    biases = [f"{name}.bias" for name in names] if has_bias else ()
    return make.read(reader, [f"{name}.weight" for name in names], shape, biases)
