"""Read the configuration of a gpt-oss model: attention sinks, and experts with biases and a clamped gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.models.decoder.llama_like import base_spec, windows_of
from gencli.models.decoder.spec import ALPHA, DecoderSpec, ExpertSpec, TensorNames, Unsupported

__all__ = ["gpt_oss_spec"]

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
    count = int(config["num_hidden_layers"])
    types = config.get("layer_types") or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(count)
    ]
    if config.get("swiglu_alpha", ALPHA) != ALPHA:
        raise Unsupported(f"swiglu_alpha is {config['swiglu_alpha']}, and the decoder has {ALPHA}")
    if config.get("hidden_act", "silu") != "silu":
        raise Unsupported(f"the activation {config['hidden_act']!r} is not the one of its experts")
    return base_spec(
        config,
        windows=windows_of(config, types),
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
        expert_layers=frozenset(range(count)),
        names=TensorNames(router="mlp.router", are_experts_joined=True),
    )
