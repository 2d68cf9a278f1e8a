"""Norms whose weights are stored less one are computed in float32, as transformers does."""

from typing import Any

import torch
import transformers as hf

from tests.models.cases import case
from tests.models.native import native_decoder
from tests.models.tiny_models import NATIVE_CONFIGS


def noisy(kind: str) -> Any:
    """A model in bfloat16 with random weights of norms, which are all zero or one otherwise."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(NATIVE_CONFIGS[kind]()).to(torch.bfloat16).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(weight, std=0.3)
    return model


def test_a_norm_with_an_offset_has_the_bits_of_transformers() -> None:
    for kind in ["gemma", "gemma2", "gemma3"]:
        with case(kind):
            model = noisy(kind)
            norm = native_decoder(model).norm
            given = torch.randn(7, 32).to(torch.bfloat16)
            reference = type(model.model.norm)(32, eps=norm.eps)
            reference.load_state_dict(model.model.norm.state_dict())
            assert norm.weight.dtype == torch.float32
            torch.testing.assert_close(norm(given), reference.to(torch.bfloat16)(given), rtol=0, atol=0)


def test_a_norm_without_an_offset_keeps_the_dtype_of_the_model() -> None:
    assert native_decoder(noisy("llama")).norm.weight.dtype == torch.bfloat16
