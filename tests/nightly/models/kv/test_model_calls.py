"""Feeds of different length share a pass without pads, and say what they say alone."""

from __future__ import annotations

import pytest
import transformers as hf

from gencli.models.kv.lane_batches import FLAT_MODELS
from tests.models.kv.test_model_calls import check_logits


@pytest.mark.parametrize("kind", sorted(FLAT_MODELS & set(hf.CONFIG_MAPPING)))
def test_one_row_of_tokens_gives_the_logits_of_each_lane_of_any_model(kind: str) -> None:
    check_logits(kind, None)
    check_logits(kind, "eager")
