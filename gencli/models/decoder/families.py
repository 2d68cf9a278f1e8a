"""Read config.json into a DecoderSpec, one function for each family.

A configuration is refused (Unsupported) if it has a key that no rule here knows, because the key may change
what the model computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gencli.models.decoder.gpt_oss import gpt_oss_spec
from gencli.models.decoder.llama_like import base_spec, windows_of
from gencli.models.decoder.rope_config import read_rope
from gencli.models.decoder.spec import DecoderSpec, ExpertSpec, TensorNames, Unsupported
from gencli.models.files.quantization import is_own, mxfp4_fault

__all__ = ["FAMILIES", "read_spec", "spec_if_any"]

# Keys without effect on logits: names, training, generation defaults, and how transformers runs the model.
_IGNORED = frozenset(
    """
    _name_or_path architectures attention_dropout attn_implementation bos_token_id
    chunk_size_feed_forward cache_implementation dtype embd_pdrop eos_token_id hidden_dropout id2label
    initializer_range is_decoder
    is_encoder_decoder label2id model_type output_attentions
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
    unknown = sorted(config.keys() - _IGNORED - _COMMON - {"quantization_config", *more})
    # transformers writes keys of its own, such as `_model_name_or_path`, with an underscore.
    unknown = [key for key in unknown if config[key] is not None and not key.startswith("_")]
    if unknown:
        raise Unsupported(f"the configuration has {unknown[0]!r}, which the decoder does not know")
    try:
        return read(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
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


def _qwen_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    count = int(config["num_hidden_layers"])
    if not config.get("use_sliding_window") or not config.get("sliding_window"):
        return (None,) * count
    first = int(config.get("max_window_layers", 28))
    types = ["sliding_attention" if layer >= first else "full_attention" for layer in range(count)]
    return windows_of(config, config.get("layer_types") or types)


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
    hidden = int(config["hidden_size"])
    if config.get("use_bidirectional_attention"):
        raise Unsupported("its attention looks ahead")
    return base_spec(
        {"tie_word_embeddings": True, **config, "hidden_act": None, "hidden_activation": _gemma_act(config)},
        norm_offset=1.0,
        embedding_scale=hidden**0.5,
        **changes,
    )


def _gemma_act(config: Mapping[str, Any]) -> str:
    act = config.get("hidden_activation") or config.get("hidden_act") or "gelu_pytorch_tanh"
    return "gelu_pytorch_tanh" if act == "gelu" else str(act)  # gemma's first files name the wrong one


def _gemma2(config: Mapping[str, Any]) -> DecoderSpec:
    types = config.get("layer_types") or [
        "full_attention" if layer % 2 else "sliding_attention"
        for layer in range(int(config["num_hidden_layers"]))
    ]
    return _gemma(
        config,
        windows=windows_of(config, types),
        scale=config.get("query_pre_attn_scalar", 256) ** -0.5,
        score_cap=config.get("attn_logit_softcapping", 50.0),
        logit_cap=config.get("final_logit_softcapping", 30.0),
        names=_GEMMA_NORMS,
    )


def _gemma3(config: Mapping[str, Any]) -> DecoderSpec:
    every = int(config.get("sliding_window_pattern") or 6)
    types = config.get("layer_types") or [
        "sliding_attention" if (layer + 1) % every else "full_attention"
        for layer in range(int(config["num_hidden_layers"]))
    ]
    head_dim, values = int(config.get("head_dim", 256)), config.get("rope_parameters") or {}
    far = values.get("full_attention") or config.get("rope_scaling") or {}
    near = values.get("sliding_attention") or {}
    theta = far.get("rope_theta") or config.get("rope_theta") or 1_000_000.0
    local = near.get("rope_theta") or config.get("rope_local_base_freq") or 10_000.0
    return _gemma(
        {"head_dim": head_dim, **config},
        windows=windows_of(config, types),
        ropes=(read_rope(config, far, head_dim, theta), read_rope(config, near, head_dim, local)),
        layer_ropes=tuple(int(one == "sliding_attention") for one in types),
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


def _olmo2(config: Mapping[str, Any]) -> DecoderSpec:
    return base_spec(
        config,
        qk_norm="whole",
        names=TensorNames(
            attention_norm=None,
            attention_post_norm="post_attention_layernorm",
            mlp_norm=None,
            mlp_post_norm="post_feedforward_layernorm",
        ),
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
    "gemma3_text": (
        _gemma3,
        (*_GEMMA_KEYS, *_CAP_KEYS, "rope_local_base_freq", "_sliding_window_pattern"),
    ),
    "phi3": (_phi3, ()),
    "olmo2": (_olmo2, ()),
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
