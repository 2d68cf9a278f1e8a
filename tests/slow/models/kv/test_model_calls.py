"""Feeds of different length share a pass without pads, and say what they say alone.

Attention lane by lane is the library's attention under a mask.
"""

from __future__ import annotations

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.hf_runner import HFRunner
from tests.models.cases import case
from tests.models.kv.test_model_calls import check_logits
from tests.models.tiny_models import build


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [("llama", None), ("mistral", "eager"), ("gemma3_text", None), ("mixtral", None)],
)
def test_one_row_of_tokens_gives_the_logits_of_each_lane_alone(kind: str, implementation: str | None) -> None:
    check_logits(kind, implementation)


def test_lanes_of_very_different_length_say_what_they_say_alone() -> None:
    for kind in ["llama", "mistral", "gemma3", "gpt2", "qwen3"]:
        with case(kind):
            model = build(kind)
            together, alone = HFRunner(model, max_lanes=3), HFRunner(model, max_lanes=1)
            texts = [
                tuple((7 * i + lane) % 120 for i in range(length)) for lane, length in enumerate((4, 400, 30))
            ]
            for lane, text in enumerate(texts):
                together.forward(StepPlan((Feed(lane, 0, text),)))
            rows = together.forward(
                StepPlan(tuple(Feed(lane, len(text), (5,)) for lane, text in enumerate(texts)))
            )
            for row, text in zip(rows, texts, strict=True):
                expected = alone.forward(StepPlan((Feed(0, 0, (*text, 5)),)))[0]
                torch.testing.assert_close(row, expected, atol=1e-4, rtol=1e-4)
                alone.release(0)
