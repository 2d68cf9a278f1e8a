"""A decoder with quantized weights: close to the one in float32, and equal to itself in any company."""

from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.native import load_native
from tests.models.tiny_models import build_native

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [30, 31], [90] * 20]


def logits(runner: DecoderRunner, lanes: list[int]) -> list[torch.Tensor]:
    """The logits behind each lane's prompt and behind one more token, [2, V]."""
    first = runner.forward(StepPlan(tuple(Feed(lane, 0, tuple(PROMPTS[lane])) for lane in lanes)))
    more = runner.forward(StepPlan(tuple(Feed(lane, len(PROMPTS[lane]), (3,)) for lane in lanes)))
    return list(torch.stack([first, more], 1))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = build_native("llama")
    model.model.layers[1].mlp.down_proj.weight.data[3, 4] = torch.nan
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.down_proj\.weight have values"):
        load_native(tmp_path, quantize="int8")


def test_another_number_format_is_refused(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="`dtype` is bfloat16, but quantized weights"):
        load_native(tmp_path, quantize="int8", dtype="bfloat16")
    assert load_native(tmp_path, quantize="int8", dtype="float32").spec.dtype == torch.float32
