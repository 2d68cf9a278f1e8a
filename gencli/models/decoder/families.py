"""Read config.json into a DecoderSpec, the description of a decoder, one function for each family.

A configuration is refused (Unsupported) if it has a key that no rule here knows, because the key may change
what the model computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from gencli.models.files.model_files import is_own, mxfp4_fault

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
        counts = Counter({(self.vocab_size, self.hidden): 1})
        counts[(heads + 2 * kv_heads) * width, self.hidden] += self.num_layers
        counts[self.hidden, heads * width] += self.num_layers
        blocks = [(self.inner, self.num_layers - len(self.expert_layers))]
        if self.experts is not None:
            counts[self.experts.count, self.hidden] += len(self.expert_layers)
            blocks.append((self.experts.width, len(self.expert_layers) * self.experts.used))
        for inner, count in blocks:
            counts[2 * inner, self.hidden] += count
            counts[self.hidden, inner] += count
        return +counts


_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


def base_spec(config: Mapping[str, Any], **changes: Any) -> DecoderSpec:
    """Return the decoder of a Llama-like configuration, with the changes of its family."""
    num_layers, num_heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    head_dim = int(config.get("head_dim") or hidden // num_heads)
    activation = config.get("hidden_activation") or config.get("hidden_act") or "silu"
    if activation not in _ACTIVATIONS:
        raise Unsupported(f"the activation {activation!r} is not one of the decoder")
    if "ropes" not in changes:
        changes["ropes"] = (read_rope(config, rope_values(config), head_dim),)
    changes.setdefault("layer_ropes", (0,) * num_layers)
    changes.setdefault("windows", (None,) * num_layers)
    changes.setdefault("scale", head_dim**-0.5)
    values: dict[str, Any] = {
        "vocab_size": int(config["vocab_size"]),
        "hidden": hidden,
        "inner": int(config["intermediate_size"]),
        "num_layers": num_layers,
        "num_heads": num_heads,
        "num_kv_heads": int(config.get("num_key_value_heads") or num_heads),
        "head_dim": head_dim,
        "context": int(config["max_position_embeddings"]),
        "norm_eps": float(config["rms_norm_eps"]),
        "activation": _ACTIVATIONS[activation],
        "has_qkv_bias": bool(config.get("attention_bias")),
        "has_out_bias": bool(config.get("attention_bias")),
        "has_mlp_bias": bool(config.get("mlp_bias")),
        "is_tied": bool(config.get("tie_word_embeddings", False)),
    }
    return DecoderSpec(**{**values, **changes})


def windows_of(
    config: Mapping[str, Any], is_near: Callable[[int], bool] = lambda layer: False
) -> tuple[int | None, ...]:
    """Return the window of each layer by its type, or if the types are left out, of those that are near."""
    types = config.get("layer_types")
    if not types:
        count = int(config["num_hidden_layers"])
        types = ["sliding_attention" if is_near(layer) else "full_attention" for layer in range(count)]
    if other := set(types) - {"full_attention", "sliding_attention"}:
        raise Unsupported(f"layers of type {min(other)} are not among the decoder's")
    return tuple(int(config["sliding_window"]) if kind == "sliding_attention" else None for kind in types)


# What transformers takes for keys that a configuration leaves out.
_DEFAULTS: Mapping[str, Any] = {
    "attention_bias": True,
    "head_dim": 64,
    "num_key_value_heads": 8,
    "rope_theta": 150_000.0,
    "sliding_window": 128,
    "rope_parameters": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}


def gpt_oss_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder of a configuration. Raises Unsupported for another activation."""
    config = {**_DEFAULTS, **{key: value for key, value in config.items() if value is not None}}
    if config.get("swiglu_alpha", ALPHA) != ALPHA:
        raise Unsupported(f"swiglu_alpha is {config['swiglu_alpha']}, and the decoder has {ALPHA}")
    if config.get("hidden_act", "silu") != "silu":
        raise Unsupported(f"the activation {config['hidden_act']!r} is not the one of its experts")
    return base_spec(
        config,
        windows=windows_of(config, lambda layer: layer % 2 == 0),
        activation="clamped",
        gate_limit=float(config.get("swiglu_limit", 7.0)),
        has_sinks=True,
        experts=ExpertSpec(
            int(config.get("num_local_experts") or config["num_experts"]),
            int(config["num_experts_per_tok"]),
            int(config["intermediate_size"]),
            is_normalized=True,  # the softmax over those that were chosen
            has_bias=True,
        ),
        expert_layers=frozenset(range(int(config["num_hidden_layers"]))),
        names=TensorNames(router="mlp.router", are_experts_joined=True),
    )


# Keys without effect on logits: names, training, generation defaults, how transformers runs the model, and
# those of layers for multi-token prediction, which draft (gencli/speculative/head_files.py).
IGNORED = frozenset(
    """
    _name_or_path architectures attention_dropout attn_implementation bos_token_id
    chunk_size_feed_forward cache_implementation dtype embd_pdrop eos_token_id hidden_dropout id2label
    initializer_range is_decoder
    is_encoder_decoder label2id model_type mtp_hidden_states_first mtp_num_hidden_layers
    num_mtp_layers num_nextn_predict_layers output_attentions
    output_hidden_states output_router_logits pad_token_id pretraining_tp problem_type resid_pdrop
    return_dict router_aux_loss_coef router_jitter_noise task_specific_params torch_dtype
    transformers_version unk_token_id unsloth_fixed unsloth_version use_cache use_return_dict
    """.split()
)
_COMMON = frozenset(
    """
    vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads
    head_dim max_position_embeddings original_max_position_embeddings rms_norm_eps hidden_act
    hidden_activation rope_theta rope_scaling rope_parameters partial_rotary_factor layer_types
    sliding_window sliding_window_pattern use_sliding_window tie_word_embeddings attention_bias mlp_bias
    """.split()
)


_MAX_LAYERS = 10_000


def read_spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder of a configuration. Raises Unsupported with the reason if it is none of ours."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise Unsupported(f"models of type {family} are none of its families")
    if config.get("quantization_config") is not None and not is_own(config):
        if family != "gpt_oss":
            raise Unsupported("the weights are quantized by another program")
        if fault := mxfp4_fault(config):
            raise Unsupported(fault)
    read, more = FAMILIES[str(family)]
    unknown = sorted(config.keys() - IGNORED - _COMMON - {"quantization_config", *more})
    # transformers writes keys of its own, such as `_model_name_or_path`, with an underscore.
    unknown = [key for key in unknown if config[key] is not None and not key.startswith("_")]
    if unknown:
        raise Unsupported(f"the configuration has {unknown[0]!r}, which the decoder does not know")
    try:
        if int(config["num_hidden_layers"]) > _MAX_LAYERS:  # each has entries in the description
            raise Unsupported(f"it has more than {_MAX_LAYERS} layers")
        return read(config)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Unsupported(f"the configuration cannot be read: {type(error).__name__}: {error}") from None


def spec_if_any(config: Mapping[str, Any]) -> DecoderSpec | None:
    """Return the decoder of a configuration; None if it is none of ours."""
    try:
        return read_spec(config)
    except Unsupported:
        return None


def _mistral(config: Mapping[str, Any]) -> DecoderSpec:
    window = config.get("sliding_window", 4096)  # the default of transformers
    return base_spec(config, windows=(window,) * int(config["num_hidden_layers"]))


def _qwen2(config: Mapping[str, Any]) -> DecoderSpec:
    return base_spec(config, windows=_qwen_windows(config), has_qkv_bias=True)


def _qwen3(config: Mapping[str, Any]) -> DecoderSpec:
    return base_spec(config, windows=_qwen_windows(config), qk_norm="head")


def _mimo(config: Mapping[str, Any]) -> DecoderSpec:
    # `attention_bias` speaks of queries, keys and values, as the class is that of qwen2.
    return replace(_qwen2(config), has_out_bias=False)


def _qwen_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    if not config.get("use_sliding_window") or not config.get("sliding_window"):
        return (None,) * int(config["num_hidden_layers"])
    first = int(config.get("max_window_layers", 28))
    return windows_of(config, lambda layer: layer >= first)


def _qwen3_moe(config: Mapping[str, Any]) -> DecoderSpec:
    count = int(config["num_hidden_layers"])
    dense, every = config.get("mlp_only_layers") or [], int(config.get("decoder_sparse_step", 1))
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    return base_spec(
        config,
        windows=(window,) * count,
        qk_norm="head",
        experts=ExpertSpec(
            int(config.get("num_experts") or config["num_local_experts"]),
            int(config["num_experts_per_tok"]),
            int(config["moe_intermediate_size"]),
            bool(config.get("norm_topk_prob", False)),
        ),
        expert_layers=frozenset(
            layer for layer in range(count) if layer not in dense and (layer + 1) % every == 0
        ),
    )


def _mixtral(config: Mapping[str, Any]) -> DecoderSpec:
    count = int(config["num_hidden_layers"])
    return base_spec(
        config,
        windows=(config.get("sliding_window"),) * count,
        experts=ExpertSpec(
            int(config["num_local_experts"]),
            int(config["num_experts_per_tok"]),
            int(config["intermediate_size"]),
            is_normalized=True,
        ),
        expert_layers=frozenset(range(count)),
        names=TensorNames(
            router="block_sparse_moe.gate", experts="block_sparse_moe.experts", expert=("w1", "w3", "w2")
        ),
    )


_GEMMA_NORMS = TensorNames(
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)


def _gemma(config: Mapping[str, Any], **changes: Any) -> DecoderSpec:
    if config.get("use_bidirectional_attention"):
        raise Unsupported("its attention looks ahead")
    activation = str(config.get("hidden_activation") or config.get("hidden_act") or "gelu_pytorch_tanh")
    if activation == "gelu":  # gemma's first files name the wrong one
        activation = "gelu_pytorch_tanh"
    return base_spec(
        {"tie_word_embeddings": True, **config, "hidden_act": None, "hidden_activation": activation},
        norm_offset=1.0,
        embedding_scale=int(config["hidden_size"]) ** 0.5,
        **changes,
    )


def _gemma2(config: Mapping[str, Any]) -> DecoderSpec:
    return _gemma(
        config,
        windows=windows_of(config, lambda layer: layer % 2 == 0),
        scale=config.get("query_pre_attn_scalar", 256) ** -0.5,
        score_cap=config.get("attn_logit_softcapping", 50.0),
        logit_cap=config.get("final_logit_softcapping", 30.0),
        names=_GEMMA_NORMS,
    )


def _gemma3(config: Mapping[str, Any]) -> DecoderSpec:
    every = int(config.get("sliding_window_pattern") or 6)
    windows = windows_of(config, lambda layer: (layer + 1) % every != 0)
    head_dim, values = int(config.get("head_dim", 256)), config.get("rope_parameters") or {}
    far = values.get("full_attention") or config.get("rope_scaling") or {}
    near = values.get("sliding_attention") or {}
    theta = far.get("rope_theta") or config.get("rope_theta") or 1_000_000.0
    local = near.get("rope_theta") or config.get("rope_local_base_freq") or 10_000.0
    return _gemma(
        {"head_dim": head_dim, **config},
        windows=windows,
        ropes=(read_rope(config, far, head_dim, theta), read_rope(config, near, head_dim, local)),
        layer_ropes=tuple(int(window is not None) for window in windows),
        scale=config.get("query_pre_attn_scalar", 256) ** -0.5,
        score_cap=config.get("attn_logit_softcapping"),
        logit_cap=config.get("final_logit_softcapping"),
        qk_norm="head",
        names=_GEMMA_NORMS,
    )


def _phi3(config: Mapping[str, Any]) -> DecoderSpec:
    return base_spec(
        config,
        windows=(config.get("sliding_window"),) * int(config["num_hidden_layers"]),
        names=TensorNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)),
    )


_OLMO_NORMS = TensorNames(
    attention_norm=None,
    attention_post_norm="post_attention_layernorm",
    mlp_norm=None,
    mlp_post_norm="post_feedforward_layernorm",
)


def _granite(config: Mapping[str, Any]) -> DecoderSpec:
    return base_spec(
        config,
        scale=float(config.get("attention_multiplier", 1.0)),
        embedding_scale=float(config.get("embedding_multiplier", 1.0)),
        residual_scale=float(config.get("residual_multiplier", 1.0)),
        logit_divisor=float(config.get("logits_scaling", 1.0)),
    )


def _smollm3(config: Mapping[str, Any]) -> DecoderSpec:
    count, every = int(config["num_hidden_layers"]), int(config.get("no_rope_layer_interval", 4))
    marks = config.get("no_rope_layers") or [int((layer + 1) % every != 0) for layer in range(count)]
    return base_spec(
        {"tie_word_embeddings": True, "rope_theta": 2_000_000.0, **config},
        layer_ropes=tuple(0 if mark else None for mark in marks),
        windows=windows_of(config),
    )


_GEMMA_KEYS = ("query_pre_attn_scalar", "use_bidirectional_attention")
_CAP_KEYS = ("attn_logit_softcapping", "final_logit_softcapping")
FAMILIES: Mapping[str, tuple[Callable[[Mapping[str, Any]], DecoderSpec], tuple[str, ...]]] = {
    "llama": (base_spec, ()),
    "mistral": (_mistral, ()),
    "qwen2": (_qwen2, ("max_window_layers",)),
    "mimo": (_mimo, ("max_window_layers", "auto_map")),
    "qwen3": (_qwen3, ("max_window_layers",)),
    "qwen3_moe": (
        _qwen3_moe,
        (
            *("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"),
            *("norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"),
        ),
    ),
    "mixtral": (_mixtral, ("num_local_experts", "num_experts_per_tok")),
    "gemma": (_gemma, ("use_bidirectional_attention",)),
    "gemma2": (_gemma2, (*_GEMMA_KEYS, *_CAP_KEYS)),
    "gemma3_text": (_gemma3, (*_GEMMA_KEYS, *_CAP_KEYS, "rope_local_base_freq", "_sliding_window_pattern")),
    "phi3": (_phi3, ()),
    "olmo2": (partial(base_spec, qk_norm="whole", names=_OLMO_NORMS), ()),
    "granite": (
        _granite,
        ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"),
    ),
    "smollm3": (_smollm3, ("no_rope_layers", "no_rope_layer_interval")),
    "gpt_oss": (
        gpt_oss_spec,
        (
            *("num_local_experts", "num_experts", "num_experts_per_tok", "swiglu_alpha", "swiglu_limit"),
            *("experts_per_token", "initial_context_length"),  # which transformers does not read
        ),
    ),
}


_ROPES = {
    "default": (),
    "linear": ("factor",),
    "factors": ("factors",),  # of GGUF files: one for each frequency
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("original_max_position_embeddings",),
    "longrope": ("long_factor", "short_factor", "original_max_position_embeddings"),
}
_ROPE_KEYS = frozenset(
    """
    rope_type type rope_theta factor low_freq_factor high_freq_factor original_max_position_embeddings
    factors long_factor short_factor attention_factor beta_fast beta_slow mscale mscale_all_dim truncate
    partial_rotary_factor
    """.split()
)


def rope_values(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rotary parameters of a configuration: today's rope_parameters, or the older rope_scaling."""
    values = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(values, Mapping):
        raise Unsupported("its rotary parameters are no object")
    return values


def read_rope(
    config: Mapping[str, Any], values: Mapping[str, Any], head_dim: int, theta: float | None = None
) -> RopeSpec:
    """Return the rotary embedding of parameters as rope_values gives them; `theta` overrides theirs.

    Raises Unsupported for a kind or a key that is not known, and for a missing one.
    """
    kind = str(values.get("rope_type") or values.get("type") or "default")
    if kind == "su":  # the first name of long rope
        kind = "longrope"
    if kind not in _ROPES or (strange := sorted(values.keys() - _ROPE_KEYS)):
        unknown = kind if kind not in _ROPES else strange[0]
        raise Unsupported(f"the rotary embedding has {unknown!r}, which the decoder does not know")
    context = int(config["max_position_embeddings"])
    parameters = dict(values)
    if kind in ("llama3", "yarn", "longrope"):
        outer = config.get("original_max_position_embeddings")
        parameters["original_max_position_embeddings"] = int(
            outer or values.get("original_max_position_embeddings") or context
        )
    if missing := [key for key in _ROPES[kind] if parameters.get(key) is None]:
        raise Unsupported(f"the rotary embedding {kind} lacks {missing[0]}")
    share = values.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    base = theta or values.get("rope_theta") or config.get("rope_theta") or 10000.0
    return RopeSpec(kind, float(base), int(head_dim * share), context, parameters)
