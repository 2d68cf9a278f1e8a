"""Feeds of different length share a pass without pads, and say what they say alone."""

from __future__ import annotations

import pytest

from tests.models.kv.test_flat import check_logits


@pytest.mark.parametrize(
    ("kind", "implementation"),
    [("llama", None), ("mistral", "eager"), ("gemma3_text", None), ("mixtral", None)],
)
def test_one_row_of_tokens_gives_the_logits_of_each_lane_alone(kind: str, implementation: str | None) -> None:
    check_logits(kind, implementation)
