"""A random Llama for measurements without model files."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["VOCABULARY", "random_llama"]

VOCABULARY = 32_000


def random_llama(
    *, hidden_size: int = 288, intermediate_size: int = 768, vocab_size: int = VOCABULARY
) -> Any:
    """Return a random Llama: six layers, six heads, tied embeddings, float32, no EOS.

    By default 15M parameters.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=6,
        vocab_size=vocab_size,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()
