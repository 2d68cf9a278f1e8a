"""The configuration of a model in a GGUF file, under the names of config.json.

The facts are those of llama.cpp's converter: https://github.com/ggml-org/llama.cpp/tree/master/conversion
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.errors import ModelError
from gencli.models.gguf.head import GgufHead
from gencli.models.gguf.ropes import rope_config

__all__ = ["MODEL_TYPES", "gguf_config"]

# GGUF's names of architectures, and the model types of config.json. A llama with experts is a Mixtral.
MODEL_TYPES: Mapping[str, str] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "olmo2": "olmo2",
    "granite": "granite",
    "smollm3": "smollm3",
}
# Keys of an architecture that are read here or in `ropes`, and those without effect on logits.
_KEYS = frozenset(
    """
    block_count context_length embedding_length feed_forward_length attention.head_count
    attention.head_count_kv attention.key_length attention.value_length
    attention.layer_norm_rms_epsilon rope.dimension_count rope.freq_base rope.scaling.type
    rope.scaling.factor rope.scaling.original_context_length rope.scaling.attn_factor
    rope.scaling.yarn_attn_factor rope.scaling.yarn_ext_factor rope.scaling.yarn_beta_fast
    rope.scaling.yarn_beta_slow
    vocab_size tensor_data_layout rope.scaling.finetuned
    """.split()
)
_MORE = {
    "llama": ("expert_count", "expert_used_count"),
    "qwen3moe": ("expert_count", "expert_used_count", "expert_feed_forward_length"),
    "gemma2": (
        *("attn_logit_softcapping", "final_logit_softcapping", "attention.scale"),
        *("attention.sliding_window", "attention.sliding_window_pattern"),
    ),
    "gemma3": (
        *("attn_logit_softcapping", "final_logit_softcapping", "attention.scale", "rope.freq_base_swa"),
        *("attention.sliding_window", "attention.sliding_window_pattern"),
    ),
    "phi3": ("attention.sliding_window",),
    "granite": ("attention.scale", "embedding_scale", "residual_scale", "logit_scale"),
}
# Layers of Gemma models of 27 billion parameters, whose scores are scaled by the width of the model.
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
_PATTERN = {"gemma2": 2, "gemma3": 6}


def gguf_config(head: GgufHead) -> dict[str, Any]:
    """Return the configuration that config.json would hold, for the parts that change what is computed.

    Raises ModelError for an architecture, or a key of one, that gencli does not know.
    """
    arch = str(head.text("general.architecture"))
    if arch not in MODEL_TYPES:
        known = ", ".join(MODEL_TYPES)
        raise ModelError(
            f"{head.path} has the architecture {arch[:60]!r}, which gencli does not run from GGUF.",
            hint=f"It runs {known}. The folder of the original model may run with transformers.",
        )
    _check_keys(head, arch)
    config = _sizes(head, arch) | rope_config(head, arch)
    if arch in ("gemma2", "gemma3"):
        config |= _gemma(head, arch, config)
    if arch == "phi3":
        config["sliding_window"] = head.count(f"{arch}.attention.sliding_window") or None
    if arch == "granite":
        config |= _granite(head, config)
    if arch == "qwen3moe":
        config |= {
            "norm_topk_prob": True,
            "moe_intermediate_size": _need(head, f"{arch}.expert_feed_forward_length"),
        }
    _check_sizes(head, arch, config)
    return {key: value for key, value in config.items() if value is not None}


def _check_sizes(head: GgufHead, arch: str, config: Mapping[str, Any]) -> None:
    """Raise ModelError for sizes that the tensors of the first layer do not have.

    Memory is taken by these sizes before the tensors are read, so they have to be those of the file.
    """
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    if heads % groups:
        raise head.wrong(
            f"{arch}.attention.head_count_kv", f"is {groups}, which does not divide {heads} heads"
        )
    wanted: dict[str, tuple[int, ...]] = {
        "token_embd": (config["vocab_size"], config["hidden_size"]),
        "blk.0.attn_output": (config["hidden_size"], heads * config["head_dim"]),
        "blk.0.ffn_down": (config["hidden_size"], config["intermediate_size"]),
    }
    if experts := config.get("num_experts") or config.get("num_local_experts"):
        if not 1 <= (config.get("num_experts_per_tok") or 0) <= experts:
            raise head.wrong(f"{arch}.expert_used_count", f"is not from 1 to {experts}")
        del wanted["blk.0.ffn_down"]
        width = config.get("moe_intermediate_size", config["intermediate_size"])
        wanted["blk.0.ffn_down_exps"] = (experts, config["hidden_size"], width)
    for name, shape in wanted.items():
        tensor = head.tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != shape:
            held = f"has the shape {list(tensor.shape)}" if tensor else "is missing"
            raise ModelError(
                f"{head.path}: {name}.weight {held}; the metadata asks for {list(shape)}.",
                hint="It is damaged, or not made for this; download it again.",
            )


def _check_keys(head: GgufHead, arch: str) -> None:
    known = {f"{arch}.{key}" for key in (*_KEYS, *_MORE.get(arch, ()))}
    for key in head.values:
        if key.startswith(f"{arch}.") and key not in known:
            raise head.wrong(
                key, f"is not known for the architecture {arch}, and may change what is computed"
            )


def _sizes(head: GgufHead, arch: str) -> dict[str, Any]:
    heads = _need(head, f"{arch}.attention.head_count")
    width = head.count(f"{arch}.attention.key_length")
    if head.count(f"{arch}.attention.value_length") != width:
        raise head.wrong(f"{arch}.attention.value_length", "differs from the length of the keys")
    if "token_embd.weight" not in head.tensors:
        raise ModelError(
            f"{head.path} lacks the tensor token_embd.weight.", hint="Is it the vocabulary of a model?"
        )
    layers = _need(head, f"{arch}.block_count")
    if layers > len(head.tensors):
        raise head.wrong(f"{arch}.block_count", f"is {layers}, but the file has {len(head.tensors)} tensors")
    has_bias = arch != "qwen2" and _has_bias(head, "attn_output")
    if arch != "qwen2" and not has_bias and (_has_bias(head, "attn_q") or _has_bias(head, "attn_qkv")):
        raise ModelError(f"{head.path} has biases of queries, which gencli does not know for {arch}.")
    experts = head.count(f"{arch}.expert_count")
    return {
        "architectures": [f"{arch} (GGUF)"],
        "model_type": "mixtral" if arch == "llama" and experts else MODEL_TYPES[arch],
        "vocab_size": head.tensors["token_embd.weight"].shape[0],
        "hidden_size": _need(head, f"{arch}.embedding_length"),
        "intermediate_size": _need(head, f"{arch}.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": head.count(f"{arch}.attention.head_count_kv") or heads,
        "head_dim": width or _need(head, f"{arch}.embedding_length") // heads,
        "max_position_embeddings": _need(head, f"{arch}.context_length"),
        "rms_norm_eps": head.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in head.tensors,
        "attention_bias": has_bias,
        "mlp_bias": _has_bias(head, "ffn_down"),
        ("num_experts" if arch == "qwen3moe" else "num_local_experts"): experts or None,
        "num_experts_per_tok": head.count(f"{arch}.expert_used_count") if experts else None,
    }


def _need(head: GgufHead, key: str) -> int:
    found = head.count(key)
    if not found:
        raise head.wrong(key, "is missing or zero")
    return found


def _has_bias(head: GgufHead, name: str) -> bool:
    return f"blk.0.{name}.bias" in head.tensors


def _gemma(head: GgufHead, arch: str, config: Mapping[str, Any]) -> dict[str, Any]:
    layers, width = config["num_hidden_layers"], config["head_dim"]
    if layers == _LAYERS_OF_27B[arch]:
        width = config["hidden_size"] / config["num_attention_heads"]
    scale = head.number(f"{arch}.attention.scale")
    window = head.count(f"{arch}.attention.sliding_window")
    return {
        "query_pre_attn_scalar": scale**-2 if scale else width,
        "attn_logit_softcapping": head.number(f"{arch}.attn_logit_softcapping"),
        "final_logit_softcapping": head.number(f"{arch}.final_logit_softcapping"),
        "sliding_window": window,
        "layer_types": [
            "sliding_attention" if window and is_near else "full_attention"
            for is_near in _near_layers(head, arch, layers)
        ],
    }


def _near_layers(head: GgufHead, arch: str, layers: int) -> list[bool]:
    """Return for each layer whether its attention has a window: all but every n-th, or as the file lists."""
    key = f"{arch}.attention.sliding_window_pattern"
    if type(head.values.get(key)) is not int and key in head.values:
        listed = list(map(bool, head.numbers(key) or ()))
        if len(listed) != layers:
            raise head.wrong(key, f"has {len(listed)} values for {layers} layers")
        return listed
    every = head.count(key) or _PATTERN[arch]
    return [(layer + 1) % every != 0 for layer in range(layers)]


def _granite(head: GgufHead, config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention_multiplier": head.number("granite.attention.scale") or config["head_dim"] ** -0.5,
        "embedding_multiplier": head.number("granite.embedding_scale"),
        "residual_multiplier": head.number("granite.residual_scale"),
        "logits_scaling": head.number("granite.logit_scale"),
    }
