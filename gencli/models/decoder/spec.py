"""Description of a decoder: the sizes and the parts in which the families differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["ALPHA", "Activation", "DecoderSpec", "ExpertSpec", "RopeSpec", "TensorNames", "Unsupported"]

Activation = Literal["silu", "gelu", "gelu_tanh", "clamped"]
ALPHA = 1.702  # of the clamped activation


class Unsupported(Exception):
    """A configuration asks for something that this decoder does not have; the message says what."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of the first `width` values of a head.

    `kind` is default, linear, factors, llama3, yarn or longrope; `values` are the parameters of that kind
    under the names of config.json. `context` is the maximum context in tokens.
    """

    kind: str
    theta: float
    width: int
    context: int
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def switches(self) -> tuple[int, ...]:
        """The text lengths in tokens beyond which other frequencies apply (long rope)."""
        return (self.values["original_max_position_embeddings"],) if self.kind == "longrope" else ()


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Mixture of experts: `used` of `count` experts compute each token.

    With `is_normalized` their weights add up to 1. With `has_bias` the router and all products have biases.
    """

    count: int
    used: int
    width: int
    is_normalized: bool
    has_bias: bool = False


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Names in the checkpoint that differ between families, within a layer.

    With `are_experts_joined` the files hold the experts of a layer in one tensor (see joined_experts).
    """

    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    attention_norm: str | None = "input_layernorm"
    attention_post_norm: str | None = None
    mlp_norm: str | None = "post_attention_layernorm"
    mlp_post_norm: str | None = None
    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    expert: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    are_experts_joined: bool = False


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder. V is `vocab_size`, H `hidden`, D `head_dim`.

    Each layer has an index into `ropes` (None: no positions) and a window in tokens (None: all).
    `expert_layers` have a mixture of experts in place of the feed-forward block of `inner` width.
    `qk_norm` normalizes queries and keys, by head or over the whole projection. The weights of norms are
    stored less `norm_offset`. Scores are multiplied by `scale` and, like logits, pass through
    cap * tanh(x / cap) where a cap is given. With `has_sinks` each query head has a score without a value.
    `gate_limit` bounds what enters the clamped activation.
    """

    vocab_size: int
    hidden: int
    inner: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context: int
    norm_eps: float
    ropes: tuple[RopeSpec, ...]
    layer_ropes: tuple[int | None, ...]
    windows: tuple[int | None, ...]
    scale: float
    activation: Activation = "silu"
    gate_limit: float = 0.0
    norm_offset: float = 0.0
    qk_norm: Literal["head", "whole"] | None = None
    has_qkv_bias: bool = False
    has_out_bias: bool = False
    has_mlp_bias: bool = False
    has_sinks: bool = False
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_divisor: float = 1.0
    is_tied: bool = False
    experts: ExpertSpec | None = None
    expert_layers: frozenset[int] = frozenset()
    names: TensorNames = TensorNames()

    @property
    def rope_switches(self) -> tuple[int, ...]:
        """The text lengths beyond which a long-rope decoder uses other frequencies."""
        return tuple(sorted({length for rope in self.ropes for length in rope.switches}))

    @property
    def token_numbers(self) -> int:
        """About how many numbers a fed token takes at a time, in the largest block of a layer."""
        if self.experts is None:
            return 4 * self.inner + 4 * self.hidden
        return self.experts.used * (3 * self.experts.width + self.hidden) + 4 * self.hidden

    @property
    def products(self) -> Counter[tuple[int, int]]:
        """The matrix products of one token in a pass, by size (out, in)."""
        heads, kv_heads, width = self.num_heads, self.num_kv_heads, self.head_dim
        made = Counter({(self.vocab_size, self.hidden): 1})
        made[(heads + 2 * kv_heads) * width, self.hidden] += self.num_layers
        made[self.hidden, heads * width] += self.num_layers
        blocks = [(self.inner, self.num_layers - len(self.expert_layers))]
        if self.experts is not None:
            made[self.experts.count, self.hidden] += len(self.expert_layers)
            blocks.append((self.experts.width, len(self.expert_layers) * self.experts.used))
        for inner, count in blocks:
            made[2 * inner, self.hidden] += count
            made[self.hidden, inner] += count
        return +made
