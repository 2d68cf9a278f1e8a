"""A decoder with quantized weights: close to the one in float32, and equal to itself in any company."""

from pathlib import Path

import pytest
import torch

from gencli.models.files.model_files import Quantize
from tests.models.decoder.test_quantized import logits
from tests.models.native import load_native
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
