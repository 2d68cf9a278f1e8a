"""Attention by bags: equal to the plain formula, and with the same bits in any company."""

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from tests.models.decoder.test_bags import _NOISE
from tests.models.native import native_decoder
from tests.models.tiny_models import VOCAB, build_native


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gemma3", "qwen3_moe", "gpt_oss"])
def test_tokens_have_the_same_bits_one_by_one_and_as_drafts(kind: str) -> None:
    decoder = native_decoder(build_native(kind))
    tokens = torch.randint(0, VOCAB, (60,), generator=_NOISE).tolist()

    def logits(widths: list[int]) -> torch.Tensor:
        runner, start, rows = DecoderRunner(decoder, max_lanes=1), 0, []
        for width in widths:
            feed = Feed(0, start, tuple(tokens[start : start + width]), width)
            rows.append(runner.forward(StepPlan((feed,))))
            start += width
        return torch.cat(rows)

    assert torch.equal(logits([40] + [1] * 20), logits([40, 4, 16]))
