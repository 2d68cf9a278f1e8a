"""Kernels that a decode step on CUDA launches, in a layer and outside of all layers."""

from __future__ import annotations

from tests.models.tiny_models import NATIVE_CONFIGS

# By family: launches of a layer, and of a step outside of its layers. Raise a number only for a reason.
# A layer has four products, two norms with the sums before them, rotation, two for attention, and the gate.
LAUNCHES = {
    "llama": (10, 6),
    "mistral": (10, 6),
    "qwen2": (10, 6),
    "qwen3": (10, 6),
    "phi3": (10, 6),
    "granite": (10, 8),
    "olmo2": (10, 5),
    "smollm3": (10, 6),
    "gemma": (10, 7),
    "gemma2": (10, 10),
    "gemma3": (10, 9),
    # Experts: the router, their choice, two products for one, and the sum.
    "mixtral": (13, 6),
    "qwen3_moe": (13, 6),
    "gpt_oss": (13, 6),
}


def test_every_family_has_its_launches() -> None:
    families = {NATIVE_CONFIGS[kind]().model_type for kind in LAUNCHES}
    assert families == {make().model_type for make in NATIVE_CONFIGS.values()}
