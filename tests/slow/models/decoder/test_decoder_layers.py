"""A decoder with quantized weights: close to the one in float32, and equal to itself in any company.

Experts in one stack have the values of experts that are computed one after the other. Experts in MXFP4 are
widened as transformers widens them, and read as any other weights.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gencli.models.decoder.decoder_layers import Experts, StackedExperts
from gencli.models.files.model_files import Quantize
from gencli.models.quantized_copy import quantize_model
from tests.models.decoder.test_decoder_layers import logits, saved
from tests.models.native import load_native, native_decoder
from tests.models.tiny_models import SUITE_KINDS, build_native

ERRORS: dict[Quantize, float] = {"int8": 0.15, "int4": 0.4}


def check_logits(kind: str, folder: Path) -> None:
    """They are about those of the weights."""
    build_native(kind).save_pretrained(folder)
    exact = torch.cat(logits(load_native(folder), [0, 1, 2]))
    for quantize, error in ERRORS.items():
        runner = load_native(folder, quantize=quantize)
        assert runner.spec.quantization == quantize
        made = torch.cat(logits(runner, [0, 1, 2]))
        assert (made - exact).norm() < error * exact.norm(), quantize


@pytest.mark.parametrize("kind", SUITE_KINDS)
def test_logits_are_about_those_of_the_weights(kind: str, tmp_path: Path) -> None:
    check_logits(kind, tmp_path)


@pytest.mark.parametrize(
    ("kind", "quantize"), [("llama", "int8"), ("qwen3_moe", "int4"), ("gpt_oss", "int8")]
)
def test_a_lane_does_not_see_its_neighbours(kind: str, quantize: Quantize, tmp_path: Path) -> None:
    build_native(kind).save_pretrained(tmp_path)
    together = logits(load_native(tmp_path, quantize=quantize), [0, 1, 2])
    for lane, expected in enumerate(together):
        assert torch.equal(logits(load_native(tmp_path, quantize=quantize), [lane])[0], expected)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_values_are_those_of_the_loop_over_experts(kind: str) -> None:
    plain, stacked = (native_decoder(build_native(kind), stacks_experts=one) for one in (False, True))
    for rows in (0, 1, 9, 200):
        states = torch.randn(rows, plain.spec.hidden, generator=torch.Generator().manual_seed(rows))
        for layer, other in zip(plain.layers, stacked.layers, strict=True):
            assert isinstance(layer.mlp, Experts)
            assert isinstance(other.mlp, StackedExperts)
            torch.testing.assert_close(other.mlp(states), layer.mlp(states), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("quantize", "error"), [("int8", 0.15), ("int4", 0.4)])
def test_they_are_quantized_as_other_weights(
    saved: tuple[Path, Any], quantize: Quantize, error: float, tmp_path: Path
) -> None:
    exact, made = (
        torch.cat(logits(load_native(saved[0], **options), [0, 1, 2]))
        for options in ({"dtype": "float32"}, {"quantize": quantize})
    )
    assert (made - exact).norm() < error * exact.norm()
    written = quantize_model(str(saved[0]), tmp_path / "after", quantize).folder
    assert not any("_blocks" in name for name in load_file(written / "model.safetensors"))
    assert torch.equal(torch.cat(logits(load_native(written), [0, 1, 2])), made)
