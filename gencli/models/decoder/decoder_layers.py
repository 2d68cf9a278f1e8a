"""Embeddings and layers of the decoder: attention, feed-forward block, mixture of experts; and the same on
CUDA, and on a CPU with compiled code: one launch between two matrix products, or none, and experts that the
device looks up itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import embedding

from gencli.models.decoder.attention_plans import AttentionPlan, FusedPlan, Scoring
from gencli.models.decoder.families import Activation, DecoderSpec, ExpertSpec
from gencli.models.decoder.kernels.layer_kernels import (
    ACTIVATIONS,
    Norm,
    added,
    added_normed,
    gated,
    normalize_heads,
    normed,
    residual_sum,
)
from gencli.models.decoder.products.coded_weights import Int8Weights
from gencli.models.decoder.products.compiled_products import CompiledProduct
from gencli.models.decoder.products.dense_products import GroupedProduct, Product
from gencli.models.model_runner import LAST
from gencli.models.rope import rotate
from processors.kernels.operations import operation

if TYPE_CHECKING:
    from gencli.models.decoder.products.product_maker import ProductMaker
    from gencli.models.decoder.weight_readers import WeightReader

P = TypeVar("P", AttentionPlan, FusedPlan)


class Embeddings(ABC):
    """Embeddings of token ids.

    `dtype` and `device` are those of the result, `nbytes` is the memory that the embeddings take.
    """

    dtype: torch.dtype
    device: torch.device
    nbytes: int

    @abstractmethod
    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]."""


class HeldEmbeddings(Embeddings):
    """Rows of a matrix [V, H] in memory."""

    def __init__(self, weight: Tensor) -> None:
        self._weight, self.nbytes = weight, weight.nbytes
        self.dtype, self.device = weight.dtype, weight.device

    def __call__(self, ids: Tensor) -> Tensor:
        return embedding(ids, self._weight)


class Int8Embeddings(Embeddings):
    """Rows of a matrix [V, H] of eight bits in memory."""

    def __init__(self, weights: Int8Weights, dtype: torch.dtype = torch.float32) -> None:
        self._weights, self.nbytes = weights, sum(part.nbytes for part in weights.tensors)
        self.dtype, self.device = dtype, weights.codes.device

    def __call__(self, ids: Tensor) -> Tensor:
        return self._weights.rows(ids).to(self.dtype)


class SharedEmbeddings(Embeddings):
    """Rows of the weights of the vocabulary projection, which has eight bits: they lie in memory once."""

    nbytes = 0
    device = torch.device("cpu")

    def __init__(self, head: CompiledProduct, dtype: torch.dtype = torch.float32) -> None:
        self._head, self.dtype = head, dtype

    def __call__(self, ids: Tensor) -> Tensor:
        return self._head.rows(ids).to(self.dtype)


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
    scoring: Scoring

    def __call__(self, qkv: Tensor, buffer: Tensor, step: Pass[AttentionPlan] | Pass[FusedPlan]) -> Tensor:
        """Return what the heads mix, [N, Hq * D], for `qkv` [N, (Hq + 2 * Hkv) * D].

        Keys and values are written to `buffer` [rows, 2 * Hkv, C, D].
        """
        spec, plan = self.spec, step.plan
        heads, kv_heads, is_whole = spec.num_heads, spec.num_kv_heads, spec.qk_norm == "whole"
        qkv = qkv.view(len(qkv), heads + 2 * kv_heads, spec.head_dim)
        norms = None if self.query_norm is None or self.key_norm is None else (self.query_norm, self.key_norm)
        index = spec.layer_ropes[self.index]
        rope = None if index is None else step.ropes[index]
        if isinstance(plan, FusedPlan):
            return plan.attend_fed(qkv, buffer, rope, norms, is_whole=is_whole, **self.scoring)
        if norms is not None:
            normalize_heads(qkv, heads, kv_heads, norms, is_whole=is_whole)
        if rope is not None:
            rotate(qkv[:, : heads + kv_heads], *rope)
        plan.store(qkv[:, heads:], buffer)
        return plan.attend(qkv, buffer, **self.scoring)


@dataclass(frozen=True, slots=True)
class _Mlp:
    """Gated feed-forward block: down(act(gate(x), up(x))). `gate_up` is one product for both."""

    gate_up: Product
    down: Product
    act: Callable[[Tensor, Tensor, float], Tensor]
    limit: float

    def __call__(self, states: Tensor) -> Tensor:
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
class DecoderLayer:
    """One layer: attention and feed-forward block, each with a norm before or after it, or both."""

    attention: _Attention
    mlp: _Mlp | Experts | StackedExperts
    norms: tuple[Norm | None, Norm | None, Norm | None, Norm | None]
    residual_scale: float

    def __call__(
        self,
        states: Tensor,
        buffer: Tensor,
        step: Pass[AttentionPlan] | Pass[FusedPlan],
        wanted: Tensor | None = None,
        read: Tensor | None = None,
    ) -> Tensor:
        """Return the states after this layer, [R, H], of the tokens `wanted` [R] among `states` [N, H].

        None stands for all tokens. Keys and values are written for all of them in any case. Attention reads
        `read` [N, inputs]; by default the states behind the first norm.
        """
        before, after, mlp_before, mlp_after = self.norms
        block, scale = self.attention, self.residual_scale
        if read is None:
            read = states if before is None else before(states)
        mixed = block(block.qkv(read), buffer, step)
        if wanted is not None:
            states, mixed = states[wanted], mixed[wanted]
        mixed = block.out(mixed)
        states = residual_sum(states, mixed if after is None else after(mixed), scale)
        output = self.mlp(states if mlp_before is None else mlp_before(states))
        return residual_sum(states, output if mlp_after is None else mlp_after(output), scale)


def read_norm(spec: DecoderSpec, reader: WeightReader, name: str, width: int) -> Norm:
    """Return the norm stored as `name`.weight."""
    weight = reader.read(f"{name}.weight", (width,))
    if spec.norm_offset:  # the sum has more digits than 16 bits hold
        weight = weight.float() + spec.norm_offset
    return Norm(weight, spec.norm_eps)


def read_layer(
    spec: DecoderSpec,
    reader: WeightReader,
    make: ProductMaker,
    index: int,
    *,
    inputs: int | None = None,
) -> DecoderLayer:
    """Return a layer with its weights and the products that `make` makes of them.

    Attention reads `inputs` numbers of a token, by default H.
    """
    prefix = f"model.layers.{index}."
    names, parts = spec.names, _LayerReader(spec, reader, make, prefix, inputs or spec.hidden)
    mlp: _Mlp | Experts | StackedExperts
    if index in spec.expert_layers:
        mlp = parts.experts()
    else:
        mlp = parts.mlp(names.gate_up, "mlp.down_proj", spec.inner, has_bias=spec.has_mlp_bias)
    norms = (names.attention_norm, names.attention_post_norm, names.mlp_norm, names.mlp_post_norm)
    before, after, mlp_before, mlp_after = (
        None if name is None else parts.norm(name, spec.hidden) for name in norms
    )
    return DecoderLayer(
        parts.attention(index), mlp, (before, after, mlp_before, mlp_after), spec.residual_scale
    )


@dataclass(frozen=True, slots=True)
class _LayerReader:
    """Reads the parts of one layer, whose tensors have names that begin with `prefix`.

    `inputs` are the numbers of a token that attention reads.
    """

    spec: DecoderSpec
    reader: WeightReader
    make: ProductMaker
    prefix: str
    inputs: int

    def norm(self, name: str, width: int) -> Norm:
        return read_norm(self.spec, self.reader, self.prefix + name, width)

    def attention(self, index: int) -> _Attention:
        spec, heads, width = self.spec, self.spec.num_heads, self.spec.head_dim
        count = heads + 2 * spec.num_kv_heads
        query_norm = key_norm = None
        if spec.qk_norm is not None:
            is_whole = spec.qk_norm == "whole"
            query_norm = self.norm("self_attn.q_norm", heads * width if is_whole else width)
            key_norm = self.norm("self_attn.k_norm", spec.num_kv_heads * width if is_whole else width)
        scoring: Scoring = {"window": spec.windows[index], "scale": spec.scale, "cap": spec.score_cap}
        if spec.has_sinks:
            scoring["sinks"] = self._read("self_attn.sinks", heads).float()
        return _Attention(
            spec,
            index,
            self._product(spec.names.qkv, (count * width, self.inputs), has_bias=spec.has_qkv_bias),
            self._product(["self_attn.o_proj"], (spec.hidden, heads * width), has_bias=spec.has_out_bias),
            query_norm,
            key_norm,
            scoring,
        )

    def mlp(self, gate_up: Sequence[str], down: str, width: int, *, has_bias: bool) -> _Mlp:
        return _Mlp(
            self._product(gate_up, (2 * width, self.spec.hidden), has_bias=has_bias),
            self._product([down], (self.spec.hidden, width), has_bias=has_bias),
            ACTIVATIONS[self.spec.activation],
            self.spec.gate_limit,
        )

    def experts(self) -> Experts | StackedExperts:
        spec, experts, names = self.spec, self.spec.experts, self.spec.names
        assert experts is not None
        has_bias, width, count = experts.has_bias or spec.has_mlp_bias, experts.width, experts.count
        router = self.make(
            self._read(f"{names.router}.weight", count, spec.hidden),
            self._read(f"{names.router}.bias", count) if experts.has_bias else None,
        )
        stems = [f"{names.experts}.{number}." for number in range(count)]
        gate, up, down = names.expert
        if self.make.stacks_experts:
            gates = [stem + name for stem in stems for name in (gate, up)]
            downs = [stem + down for stem in stems]
            return StackedExperts(
                router,
                self._stacked(gates, (count, 2 * width, spec.hidden), has_bias=has_bias),
                self._stacked(downs, (count, spec.hidden, width), has_bias=has_bias),
                experts,
                spec.activation,
                spec.gate_limit,
            )
        mlps = [self.mlp([stem + gate, stem + up], stem + down, width, has_bias=has_bias) for stem in stems]
        return Experts(router, tuple(mlps), experts.used, experts.is_normalized)

    def _stacked(self, names: list[str], shape: tuple[int, int, int], *, has_bias: bool) -> GroupedProduct:
        """Return the products of E experts, whose joined weights are [E, out, in]."""
        count, outputs, inputs = shape
        names = [self.prefix + name for name in names]
        joined = self.make.weights_of(
            self.reader, [f"{name}.weight" for name in names], (count * outputs, inputs)
        )
        bias = None
        if has_bias:
            biases = self.reader.joined([f"{name}.bias" for name in names], (count * outputs,))
            bias = biases.view(count, outputs)
        return GroupedProduct(*(part.view(count, outputs, *part.shape[1:]) for part in joined), bias=bias)

    def _product(self, names: Sequence[str], shape: tuple[int, int], *, has_bias: bool) -> Product:
        weights = [f"{self.prefix}{name}.weight" for name in names]
        biases = [f"{self.prefix}{name}.bias" for name in names] if has_bias else ()
        return self.make.read(self.reader, weights, shape, biases)

    def _read(self, name: str, *shape: int) -> Tensor:
        return self.reader.read(self.prefix + name, shape)


@dataclass(slots=True, eq=False)
class Inside:
    """States that a pass leaves for its caller, by the number of layers before them.

    0 is the embedding, LAST behind the final norm. `early` gets the states [R, H] of the tokens with logits
    at each number that it names, `taps` those [S, H] of the tokens `places` [S] (None: of all).
    """

    early: dict[int, Tensor]
    taps: dict[int, Tensor]
    places: Tensor | None = None

    def keep(self, number: int, states: Tensor, wanted: Tensor | None) -> None:
        """Keep the states [N, H] behind `number` layers, where they are asked for."""
        if number in self.early:
            self.early[number] = states if wanted is None else states[wanted]
        if number in self.taps:
            self.taps[number] = states if self.places is None else states[self.places]

    def taps_behind(self, layer: int) -> bool:
        """Whether states behind the last layer, `layer`, are tapped: of tokens without logits too."""
        return LAST in self.taps or layer + 1 in self.taps


def fused_layers(
    layers: Sequence[DecoderLayer],
    norm: Norm,
    states: Tensor,
    step: Pass[FusedPlan],
    buffers: Sequence[Tensor],
    wanted: Tensor | None,
    inside: Inside | None,
) -> Tensor:
    """Return the states [R, H] of the tokens `wanted` [R] behind the final norm."""
    incoming, last = _Sum(states), len(layers) - 1
    cut = None if inside and inside.taps_behind(last) else wanted
    for number, (layer, buffer) in enumerate(zip(layers, buffers, strict=True)):
        if inside and (number in inside.early or number in inside.taps):
            # The layer computes the sum anew: its bits do not depend on who reads it here.
            inside.keep(number, incoming.value(), wanted)
        incoming = _through(layer, incoming, buffer, step, cut if number == last else None)
    states, normalized = incoming.value_and_norm(norm)
    if inside:
        inside.keep(last + 1, states, wanted)
        inside.keep(LAST, normalized, wanted)
    return normalized if wanted is None or cut is wanted else normalized[wanted]


def _through(
    layer: DecoderLayer, incoming: _Sum, buffer: Tensor, step: Pass[FusedPlan], wanted: Tensor | None
) -> _Sum:
    """Return what the layer leaves, of the tokens `wanted` [R]; None stands for all of them."""
    before, after, mlp_before, mlp_after = layer.norms
    block, mlp, spec, scale = layer.attention, layer.mlp, layer.attention.spec, layer.residual_scale
    states, qkv = incoming.into(block.qkv, before)
    mixed = block(qkv, buffer, step)
    if wanted is not None:
        states, mixed = states[wanted], mixed[wanted]
    incoming = _Sum(states, block.out(mixed), after, scale)
    if isinstance(mlp, Experts | StackedExperts):
        states, normalized = incoming.value_and_norm(mlp_before)
        return _Sum(states, mlp(normalized), mlp_after, scale)
    states, gate_up = incoming.into(mlp.gate_up, mlp_before)
    return _Sum(states, mlp.down.of_gate(gate_up, spec.activation, spec.gate_limit), mlp_after, scale)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Residual sum not yet computed, states + scale * post(more); the launch of the next norm computes it."""

    states: Tensor
    more: Tensor | None = None
    post: Norm | None = None
    scale: float = 1.0

    def value(self) -> Tensor:
        return self.states if self.more is None else added(self.states, self.more, self.post, self.scale)

    def value_and_norm(self, norm: Norm | None) -> tuple[Tensor, Tensor]:
        """Return the states [N, H], and their norm; without a norm the states twice."""
        if norm is None:
            states = self.value()
            return states, states
        if self.more is None:
            return self.states, normed(self.states, norm)
        return added_normed(self.states, self.more, self.post, self.scale, norm)

    def into(self, product: Product, norm: Norm | None) -> tuple[Tensor, Tensor]:
        """Return the states [N, H], and the product with their norm or, without one, with them."""
        if norm is None:
            states = self.value()
            return states, product(states)
        return product.of_norm(self.states, self.more, self.post, self.scale, norm)


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """A mixture of experts whose weights are two stacks: gates and up [E, 2 * I, H], and down [E, H, I].

    Six launches, of sizes that depend on shapes alone. The host waits for none. But for the router, a row has
    the same bits among any other rows.
    """

    router: Product
    gate_up: GroupedProduct
    down: GroupedProduct
    spec: ExpertSpec
    activation: Activation
    gate_limit: float = 0.0

    def __call__(self, states: Tensor) -> Tensor:
        used = self.spec.used
        block = min(product.rows_of_tile(len(states) * used) for product in (self.gate_up, self.down))
        shares, lists, tiles = routed(self.router(states), used, self.spec.is_normalized, block)
        active = gated(self.gate_up(states, lists, tiles, block, used), self.activation, self.gate_limit)
        return mixed(self.down(active, lists, tiles, block, 1), shares)


def routed(logits: Tensor, used: int, is_normalized: bool, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the choice of `used` of E experts for each row by the router's `logits` [N, E].

    The best ones by the softmax in float32 are chosen, the lowest number among equals. A pair is a row and a
    slot, row * used + slot; the slots of a row are its experts in the order of their numbers. Returned are
    the shares [N, used] of the experts, in the format of the logits, whose sum is 1 if `is_normalized`;
    int32 lists [E, N], of which expert e has its pairs in row e, in ascending order; and int32 tiles [T, 3],
    at most `block` pairs of one expert each: the expert, the first place in its list, and how many pairs,
    0 for tiles that are not needed. T depends on N, E, `used` and `block` alone.
    """
    choice: tuple[Tensor, Tensor, Tensor] = _routed(logits.contiguous(), used, is_normalized, block)
    return choice


def mixed(outputs: Tensor, shares: Tensor) -> Tensor:
    """Return the sum of a row's pairs `outputs` [N * used, H] times their shares [N, used]: [N, H].

    It is added up in float32, slot by slot, and rounded once.
    """
    total: Tensor = _mixed(outputs, shares)
    return total


def num_entries(rows: int, experts: int, used: int, block: int) -> int:
    """Return the most tiles that any choice takes.

    n experts with p pairs in all take at most p / block full tiles and n others, and an expert has each row
    once at most.
    """
    chosen = min(experts, rows * used)
    return min(chosen + rows * used // block, chosen * -(-rows // block))


def _routed_torch(
    logits: Tensor, used: int, is_normalized: bool, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, experts = logits.shape
    odds = logits.softmax(-1, dtype=torch.float32)
    best = odds.sort(dim=-1, descending=True, stable=True).indices[:, :used]
    chosen = best.sort(-1).values
    shares = odds.gather(-1, chosen)
    if is_normalized:
        shares = shares / shares.sum(-1, keepdim=True)
    is_used = torch.zeros_like(odds, dtype=torch.int64).scatter_(1, chosen, 1)
    places = (is_used.cumsum(0) - is_used).gather(1, chosen)
    lists = chosen.new_zeros(experts, rows, dtype=torch.int32)
    lists[chosen, places] = torch.arange(rows * used, dtype=torch.int32, device=logits.device).view(
        rows, used
    )
    counts = is_used.sum(0)
    starts = torch.arange(0, rows, block, device=logits.device)
    sizes = (counts[:, None] - starts).clamp(0, block)
    numbers = torch.arange(experts, device=logits.device)[:, None].expand(-1, len(starts))
    entries = torch.stack([numbers, starts.expand(experts, -1), sizes], -1).view(-1, 3)
    entries = entries[(entries[:, 2] == 0).sort(stable=True).indices]  # those that are needed come first
    tiles = entries[: num_entries(rows, experts, used, block)].int()
    return shares.to(logits.dtype), lists, tiles


def _mixed_torch(outputs: Tensor, shares: Tensor) -> Tensor:
    rows, used = shares.shape
    pairs, weights = outputs.view(rows, used, outputs.shape[1]).float(), shares.float()
    total = outputs.new_zeros(rows, outputs.shape[1], dtype=torch.float32)
    for slot in range(used):
        total += pairs[:, slot] * weights[:, slot, None]
    return total.to(outputs.dtype)


_MODULE = "gencli.models.decoder.kernels.routing_triton"
_routed = operation(
    "route_experts(Tensor logits, int used, bool is_normalized, int block) -> (Tensor, Tensor, Tensor)",
    _routed_torch,
    f"{_MODULE}:routed",
)
_mixed = operation("mix_experts(Tensor made, Tensor shares) -> Tensor", _mixed_torch, f"{_MODULE}:mixed")
