"""References of trained draft heads: plain torch in float64, without a cache, a batch or code of gencli.

A head reads hidden states of the target ("taps") and the tokens, and gives logits of the tokens behind
them. A tap is an index k as in transformers' `hidden_states`: 0 is the embedding that layer 0 reads, k the
output of layer k - 1, and LAST is behind the final norm.

Of a text x_0 ... x_n the states of x_0 ... x_{n-1} are known. An entry pairs the feature of token i with
token i + 1, so the newest entry has the newest token, and the first draft is a proposal for token n + 1.
Positions count from the first given state: rotary positions are relative.

A norm or a bias whose weight is left out of the weights is not computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

LAST = -1  # the tap behind the final norm, which the vocabulary projection reads
Weights = Mapping[str, Tensor]
States = Mapping[int, Tensor]  # by tap the states [n, H of the target]
Markov = Literal["vanilla", "gated", "rnn"]  # heads of DSpark
Block = Callable[[Tensor, Tensor], Tensor]  # input [n, H] and positions [n] to the output [n, H] of a layer


@dataclass(frozen=True)
class Target:
    """What heads share with the target: `embedding` [V, H] and `lm_head` [V, H]."""

    embedding: Tensor
    lm_head: Tensor

    @property
    def vocab(self) -> int:
        """The size V of the vocabulary."""
        return self.lm_head.shape[0]


@dataclass(frozen=True)
class LayerShape:
    """What the weights of a layer do not tell.

    Norms compute x / rms(x) * (weight + norm_offset). With experts, `experts_used` of them compute a token,
    and `are_experts_normalized` lets their weights add up to 1.
    """

    heads: int
    kv_heads: int
    theta: float = 10000.0
    eps: float = 1e-6
    norm_offset: float = 0.0
    experts_used: int = 0
    are_experts_normalized: bool = True


def doubled(weights: Weights) -> dict[str, Tensor]:
    """The weights, those of floating point in float64."""
    return {name: w.double() if w.is_floating_point() else w for name, w in weights.items()}


def below(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """The weights whose names begin with the prefix, under their names without it."""
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def rms_norm(x: Tensor, weight: Tensor | None, shape: LayerShape) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * (weight + offset) over the last axis; x itself without a weight."""
    if weight is None:
        return x
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + shape.eps) * (weight + shape.norm_offset)


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    """The product of a projection, with its bias if it has one."""
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding of x [n, heads, D] at positions [n]: value j of a head is paired with j + D / 2."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    low, high = x[..., :half], x[..., half:]
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    """Attention of q [n, heads, D] over k and v [m, kv_heads, D] where visible [n, m]: [n, heads * D]."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = torch.einsum("nhd,mhd->hnm", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~visible, -torch.inf)
    return torch.einsum("hnm,mhd->nhd", scores.softmax(dim=-1), v).flatten(1)


def self_attention(
    x: Tensor,
    weights: Weights,
    shape: LayerShape,
    positions: Tensor,
    context: Tensor | None = None,
    visible: Tensor | None = None,
) -> Tensor:
    """Causal attention of x [n, any width]; with a context [m, H], over context and x where `visible`."""
    joined = x if context is None else torch.cat((context, x))
    q = linear(x, weights, "q_proj").reshape(len(x), shape.heads, -1)
    k = linear(joined, weights, "k_proj").reshape(len(joined), shape.kv_heads, -1)
    v = linear(joined, weights, "v_proj").reshape(len(joined), shape.kv_heads, -1)
    q = rms_norm(q, weights.get("q_norm.weight"), shape)
    k = rms_norm(k, weights.get("k_norm.weight"), shape)
    q, k = rotate(q, positions[-len(x) :], shape.theta), rotate(k, positions, shape.theta)
    if visible is None:
        visible = torch.ones(len(x), len(joined), dtype=torch.bool).tril()
    return linear(attend(q, k, v, visible), weights, "o_proj")


def feed_forward(x: Tensor, weights: Weights, shape: LayerShape) -> Tensor:
    """The block down(silu(gate(x)) * up(x)), or a mixture of such blocks if there is a router `gate`."""

    def gated(x: Tensor, weights: Weights) -> Tensor:
        gate, up = linear(x, weights, "gate_proj"), linear(x, weights, "up_proj")
        return linear(torch.nn.functional.silu(gate) * up, weights, "down_proj")

    if "gate.weight" not in weights:
        return gated(x, weights)
    shares, chosen = linear(x, weights, "gate").softmax(dim=-1).topk(shape.experts_used)
    if shape.are_experts_normalized:
        shares = shares / shares.sum(dim=-1, keepdim=True)
    out = torch.zeros_like(x)
    for i, experts in enumerate(chosen.tolist()):
        for share, expert in zip(shares[i], experts, strict=True):
            out[i] += share * gated(x[i], below(weights, f"experts.{expert}."))
    return out


def plain_block(weights: Weights, shape: LayerShape) -> Block:
    """A layer of a Llama-like model; a layer without input_layernorm reads its input as it is."""

    def block(x: Tensor, positions: Tensor) -> Tensor:
        normed = rms_norm(x, weights.get("input_layernorm.weight"), shape)
        x = x + self_attention(normed, below(weights, "self_attn."), shape, positions)
        normed = rms_norm(x, weights.get("post_attention_layernorm.weight"), shape)
        return x + feed_forward(normed, below(weights, "mlp."), shape)

    return block


def transformers_block(layer: Any, rotary: Any) -> Block:
    """A layer of a model of transformers in float64, for families without a plain reference here."""

    def block(x: Tensor, positions: Tensor) -> Tensor:
        mask = torch.full((len(x), len(x)), -torch.inf, dtype=x.dtype).triu(1)[None, None]
        angles = rotary(x[None], position_ids=positions[None])
        out: Tensor = layer(
            x[None], position_embeddings=angles, attention_mask=mask, position_ids=positions[None]
        )
        return out[0]

    return block


def spread(logits: Tensor, ids: Tensor | None, vocab: int) -> Tensor:
    """Logits of a draft vocabulary at their target ids, -inf elsewhere; without ids the logits themselves."""
    if ids is None:
        return logits
    return logits.new_full((*logits.shape[:-1], vocab), -torch.inf).index_copy(-1, ids, logits)


class Reference(ABC):
    """A draft head. `taps` are the states that it reads, `depth` its most drafts (None: no bound)."""

    taps: tuple[int, ...]
    depth: int | None = None

    @abstractmethod
    def along(self, ids: Sequence[int], states: States, path: Sequence[int]) -> Tensor:
        """Logits [1 + len(path), V] of the drafts behind a text, where the drafts are the tokens of the path.

        The states are those of all tokens but the last; rows beyond them are not read.
        """

    def draft(self, ids: Sequence[int], states: States, count: int) -> tuple[list[int], Tensor]:
        """`count` drafts behind a text, each the likeliest, and their logits [count, V]."""
        tokens: list[int] = []
        logits = torch.empty(0)
        for _ in range(count):
            logits = self.along(ids, states, tokens)
            tokens.append(int(logits[-1].argmax()))
        return tokens, logits

    def forced(self, ids: Sequence[int], states: States, depth: int = 1) -> Tensor:
        """Logits [depth, len(ids) - depth, V]: of draft j behind token i + 1, along the tokens of the text.

        They are proposals for token i + 2 + j. The features of a draft are the head's own.
        """
        rows = []
        for i in range(len(ids) - depth):
            known = {tap: states[tap][: i + 1] for tap in self.taps}
            rows.append(self.along(ids[: i + 2], known, ids[i + 2 : i + 1 + depth]))
        return torch.stack(rows, dim=1)


class Recursive(Reference):
    """A head that reads its own output in place of the features of drafts.

    It has `num_layers` layers of one kind, each with its own entries. Draft j is the output of layer
    j % num_layers. Entries of layer l pair feature l of token i with token i + 1 + l, where feature 0 is that
    of the target and feature l the output of layer l - 1. Further drafts extend the entries of their layer.
    """

    num_layers = 1

    @abstractmethod
    def condense(self, states: States) -> Tensor:
        """The features [n, H of the head] of tokens, from their states."""

    @abstractmethod
    def step(
        self, ids: Tensor, features: Tensor, positions: Tensor | None = None, layer: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The next features [n, H] and logits [n, V] of entries with tokens ids [n], each over those before.

        Positions are 0 to n - 1 if left out.
        """

    def along(self, ids: Sequence[int], states: States, path: Sequence[int]) -> Tensor:
        """Logits [1 + len(path), V]; see the base class."""
        known = len(ids) - 1
        output = self.condense({tap: states[tap][:known] for tap in self.taps})
        tokens, rows = torch.tensor([*ids, *path]), []
        entries: list[tuple[Tensor, Tensor, Tensor]] = []
        for j in range(len(path) + 1):
            layer = j % self.num_layers
            if j < self.num_layers:  # all known tokens, and the drafts so far
                positions = torch.arange(j, j + known)
                entries.append((tokens[positions + 1], output, positions))
            else:
                embedded, features, positions = entries[layer]
                entries[layer] = (
                    torch.cat((embedded, tokens[[known + j]])),
                    torch.cat((features, output[-1:])),
                    torch.cat((positions, torch.tensor([known - 1 + j]))),
                )
            output, logits = self.step(*entries[layer], layer)
            rows.append(logits[-1])
        return torch.stack(rows)


class Eagle1(Recursive):
    """EAGLE-1 and EAGLE-2: u = layers(fc([embed(token), feature])), logits = lm_head(u), next feature u.

    Weights: fc.weight [H, 2H], fc.bias, embed_tokens.weight (that of the target if left out) and layers.N.*,
    of which the first has no input_layernorm. The head has no norm and no vocabulary projection of its own.
    """

    taps = (LAST,)

    def __init__(self, weights: Weights, target: Target, *, shape: LayerShape) -> None:
        self.weights, self.target = doubled(weights), target
        self.embedding = self.weights.get("embed_tokens.weight", target.embedding.double())
        self.blocks = [plain_block(layer, shape) for layer in layers_of(self.weights)]

    def condense(self, states: States) -> Tensor:
        """The states behind the target's final norm."""
        return states[LAST].double()

    def step(
        self, ids: Tensor, features: Tensor, positions: Tensor | None = None, layer: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Next features and logits; see the base class."""
        positions = torch.arange(len(ids)) if positions is None else positions
        u = linear(torch.cat((self.embedding[ids], features), dim=-1), self.weights, "fc")
        for block in self.blocks:
            u = block(u, positions)
        return u, u @ self.target.lm_head.double().T


class Eagle3(Recursive):
    """EAGLE-3: attention of the first layer reads [norm(embed(token)), norm(feature)].

    g = fc(taps), e = input_layernorm(embed(token)), m = hidden_norm(g),
    u = (m if norm_before_residual else g) + attention([e, m]), u = u + mlp(post_attention_layernorm(u)),
    logits = lm_head(norm(u)) * logit_scale, next feature = norm(u) if norm_output else u.

    Weights: embed_tokens.weight (the target's if left out), fc.weight (the taps as they are if left out),
    input_norm.weight of all taps together or fc_norm.N.weight of each, layers.N.*, norm.weight,
    lm_head.weight [Vd, H], d2t [Vd] (target id less draft id).
    """

    def __init__(
        self,
        weights: Weights,
        target: Target,
        *,
        shape: LayerShape,
        taps: tuple[int, ...],
        norm_before_residual: bool = False,
        norm_output: bool = False,
        logit_scale: float = 1.0,
    ) -> None:
        self.taps, self.weights, self.shape, self.target = taps, doubled(weights), shape, target
        self.norm_before_residual, self.norm_output = norm_before_residual, norm_output
        self.logit_scale = logit_scale
        self.embedding = self.weights.get("embed_tokens.weight", target.embedding.double())
        self.first, *rest = layers_of(self.weights)
        self.rest = [plain_block(layer, shape) for layer in rest]
        self.vocabulary = target_ids(self.weights)

    def condense(self, states: States) -> Tensor:
        """The taps, normalized and mixed by fc."""
        parts = [states[tap].double() for tap in self.taps]
        norms = [self.weights.get(f"fc_norm.{i}.weight") for i in range(len(parts))]
        joined = torch.cat(
            [rms_norm(part, norm, self.shape) for part, norm in zip(parts, norms, strict=True)], dim=-1
        )
        joined = rms_norm(joined, self.weights.get("input_norm.weight"), self.shape)
        return linear(joined, self.weights, "fc") if "fc.weight" in self.weights else joined

    def step(
        self, ids: Tensor, features: Tensor, positions: Tensor | None = None, layer: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Next features and logits; see the base class."""
        positions = torch.arange(len(ids)) if positions is None else positions
        first, shape = self.first, self.shape
        e = rms_norm(self.embedding[ids], first.get("input_layernorm.weight"), shape)
        m = rms_norm(features, first.get("hidden_norm.weight"), shape)
        u = m if self.norm_before_residual else features
        u = u + self_attention(torch.cat((e, m), dim=-1), below(first, "self_attn."), shape, positions)
        normed = rms_norm(u, first.get("post_attention_layernorm.weight"), shape)
        u = u + feed_forward(normed, below(first, "mlp."), shape)
        for block in self.rest:
            u = block(u, positions)
        normed = rms_norm(u, self.weights.get("norm.weight"), shape)
        logits = normed @ self.weights["lm_head.weight"].T * self.logit_scale
        return normed if self.norm_output else u, spread(logits, self.vocabulary, self.target.vocab)


class Mtp(Recursive):
    """Multi-token prediction by layers that ship with the target.

    x = eh_proj([enorm(embed(token)), hnorm(feature)]), or with feature and token changed over if
    `hidden_first`; out = post_norm(block(x)), logits = lm_head(out) of the target, next feature = out, or the
    output of the block if `feeds_before_norm`.

    Weights: N.enorm.weight, N.hnorm.weight, N.eh_proj.weight [H, 2H], N.post_norm.weight of each layer.
    """

    taps = (LAST,)

    def __init__(
        self,
        weights: Weights,
        target: Target,
        *,
        shape: LayerShape,
        blocks: Sequence[Block],
        hidden_first: bool = False,
        feeds_before_norm: bool = False,
    ) -> None:
        self.weights, self.shape, self.blocks, self.target = doubled(weights), shape, blocks, target
        self.hidden_first, self.feeds_before_norm = hidden_first, feeds_before_norm
        self.num_layers = len(blocks)

    def condense(self, states: States) -> Tensor:
        """The states behind the target's final norm."""
        return states[LAST].double()

    def step(
        self, ids: Tensor, features: Tensor, positions: Tensor | None = None, layer: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Next features and logits; see the base class."""
        positions = torch.arange(len(ids)) if positions is None else positions
        weights, shape = below(self.weights, f"{layer}."), self.shape
        token = rms_norm(self.target.embedding.double()[ids], weights.get("enorm.weight"), shape)
        hidden = rms_norm(features, weights.get("hnorm.weight"), shape)
        pair = (hidden, token) if self.hidden_first else (token, hidden)
        u = self.blocks[layer](linear(torch.cat(pair, dim=-1), weights, "eh_proj"), positions)
        out = rms_norm(u, weights.get("post_norm.weight"), shape)
        return u if self.feeds_before_norm else out, out @ self.target.lm_head.double().T


class Medusa(Reference):
    """Medusa: head j reads the newest state h alone: each block x + silu(linear(x)), then lm_head.

    Weights: blocks.J.N.weight [H, H] and .bias, lm_heads.J.weight [Vd, H], token_map [Vd] (target ids).
    """

    taps = (LAST,)

    def __init__(self, weights: Weights, target: Target) -> None:
        self.weights, self.target = doubled(weights), target
        self.depth = len([name for name in weights if name.startswith("lm_heads.")])

    def along(self, ids: Sequence[int], states: States, path: Sequence[int]) -> Tensor:
        """Logits [1 + len(path), V], which do not depend on the path; see the base class."""
        h, rows = states[LAST][len(ids) - 2].double(), []
        for j in range(len(path) + 1):
            x, block = h, 0
            while f"blocks.{j}.{block}.weight" in self.weights:
                x = x + torch.nn.functional.silu(linear(x, self.weights, f"blocks.{j}.{block}"))
                block += 1
            rows.append(linear(x, self.weights, f"lm_heads.{j}"))
        return spread(torch.stack(rows), self.weights.get("token_map"), self.target.vocab)


class DFlash(Reference):
    """DFlash: one pass over a block of the newest token and masks, which sees all taps and the whole block.

    c = hidden_norm(fc(taps)) of the known tokens; each layer: q from the block, k and v from [c, block].
    A layer with one of the `windows` is causal and sees so many tokens, and all are causal if the head
    `is_causal`. Row j of the block, j >= 1, is draft j - 1; if `samples_anchor`, row j is draft j.

    DSpark adds to the logits of a draft with the state h = norm(x) and the token t before it, e = w1[t]:
    vanilla: w2 e; gated: w2 (sigmoid(gate_proj [h, e]) * e); rnn: [g, c, o] = joint_proj [s, e, h],
    s = sigmoid(g) s + (1 - sigmoid(g)) tanh(c), w2 tanh(o), where s is zero before the first draft.

    Weights: fc.weight, hidden_norm.weight, layers.N.*, norm.weight; embed_tokens.weight, lm_head.weight and
    d2t if it has its own; markov_head.*.
    """

    def __init__(
        self,
        weights: Weights,
        target: Target,
        *,
        shape: LayerShape,
        taps: tuple[int, ...],
        mask_id: int,
        block_size: int,
        samples_anchor: bool = False,
        is_causal: bool = False,
        windows: Sequence[int | None] = (),
        markov: Markov | None = None,
        shift: int = 0,
    ) -> None:
        self.taps, self.weights, self.shape, self.target = taps, doubled(weights), shape, target
        self.is_causal, self.windows, self.markov, self.shift = is_causal, windows, markov, shift
        self.mask_id, self.block_size, self.samples_anchor = mask_id, block_size, samples_anchor
        self.embedding = self.weights.get("embed_tokens.weight", target.embedding.double())
        self.lm_head = self.weights.get("lm_head.weight", target.lm_head.double())
        self.depth = block_size - (not samples_anchor)

    def along(self, ids: Sequence[int], states: States, path: Sequence[int]) -> Tensor:
        """Logits [1 + len(path), V], which depend on the path in DSpark; see the base class."""
        known = len(ids) - 1
        taps = torch.cat([states[tap][:known].double() for tap in self.taps], dim=-1)
        context = rms_norm(
            linear(taps, self.weights, "fc"), self.weights.get("hidden_norm.weight"), self.shape
        )
        x = self.embedding[[ids[-1], *[self.mask_id] * (self.block_size - 1)]]
        positions = torch.arange(known + self.block_size)
        positions[known:] += self.shift  # 0, but for a head with a fault
        distances = positions[known:, None] - positions
        for i, layer in enumerate(layers_of(self.weights)):
            window = self.windows[i] if self.windows else None
            visible = torch.ones_like(distances, dtype=torch.bool)
            if self.is_causal or window:
                visible &= distances >= 0
            if window:
                visible &= distances < window
            normed = rms_norm(x, layer.get("input_layernorm.weight"), self.shape)
            attention = below(layer, "self_attn.")
            x = x + self_attention(normed, attention, self.shape, positions, context, visible)
            normed = rms_norm(x, layer.get("post_attention_layernorm.weight"), self.shape)
            x = x + feed_forward(normed, below(layer, "mlp."), self.shape)
        x = rms_norm(x, self.weights.get("norm.weight"), self.shape)
        x = x[0 if self.samples_anchor else 1 :][: len(path) + 1]
        logits = x @ self.lm_head.T
        if self.markov is not None:
            logits = logits + self.biases(x, [ids[-1], *path])
        return spread(logits, target_ids(self.weights), self.target.vocab)

    def biases(self, x: Tensor, before: Sequence[int]) -> Tensor:
        """The biases [n, Vd] of drafts with the states x [n, H] behind the tokens `before` [n]."""
        weights = below(self.weights, "markov_head.")
        embedded, rows = weights["markov_w1.weight"][list(before)], []
        state = torch.zeros_like(embedded[0])
        for h, e in zip(x, embedded, strict=True):
            mixed = e
            if self.markov == "gated":
                mixed = torch.sigmoid(linear(torch.cat((h, e)), weights, "gate_proj")) * e
            if self.markov == "rnn":
                gate, new, out = linear(torch.cat((state, e, h)), weights, "joint_proj").chunk(3)
                state = gate.sigmoid() * state + (1 - gate.sigmoid()) * new.tanh()
                mixed = out.tanh()
            rows.append(weights["markov_w2.weight"] @ mixed)
        return torch.stack(rows)


def layers_of(weights: Weights) -> list[dict[str, Tensor]]:
    """The weights of layers.0, layers.1 and so on."""
    count = len({name.split(".")[1] for name in weights if name.startswith("layers.")})
    return [below(weights, f"layers.{i}.") for i in range(count)]


def target_ids(weights: Weights) -> Tensor | None:
    """The target ids of a draft vocabulary, from their differences d2t; None if there is none."""
    return weights["d2t"] + torch.arange(len(weights["d2t"])) if "d2t" in weights else None
