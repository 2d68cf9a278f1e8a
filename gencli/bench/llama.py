"""A random Llama for measurements without model files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from gencli.models.decoder.families import read_spec
from gencli.models.decoder.runner import DecoderRunner
from gencli.models.files.checkpoint import read_checkpoint
from gencli.models.files.json_files import read_object
from gencli.models.files.quantization import Quantize

__all__ = ["VOCABULARY", "native_runner", "random_llama"]

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


def native_runner(model: Any, *, max_lanes: int, quantize: Quantize = "none") -> DecoderRunner:
    """Return a runner of gencli's own decoder with the weights of a Llama of transformers."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        model.save_pretrained(folder)
        config = read_object(folder / "config.json")
        checkpoint = read_checkpoint(folder, config, read_spec(config))
        return DecoderRunner.load(checkpoint, device="cpu", max_lanes=max_lanes, quantize=quantize)
