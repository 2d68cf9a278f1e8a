"""Fields of config.json that all model families share: the decoder of a Llama-like configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.models.decoder.rope_config import read_rope, rope_values
from gencli.models.decoder.spec import Activation, DecoderSpec, Unsupported

__all__ = ["base_spec", "windows_of"]

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


def windows_of(config: Mapping[str, Any], types: list[str] | None = None) -> tuple[int | None, ...]:
    """Return the window of each layer, by its type."""
    types = types or config.get("layer_types")
    if types is None:
        types = ["full_attention"] * int(config["num_hidden_layers"])
    if other := set(types) - {"full_attention", "sliding_attention"}:
        raise Unsupported(f"layers of type {min(other)} are not among the decoder's")
    return tuple(int(config["sliding_window"]) if one == "sliding_attention" else None for one in types)
