"""Attention lane by lane is the library's attention under a mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from gencli.models.kv.lane_batches import lane_attention, mark_spans
from tests.models.cases import case


def mask_of(spans: list[tuple[int, int]], width: int = 300) -> Tensor:
    mask = torch.zeros(len(spans), 1, 1, width, dtype=torch.bool)
    for lane, (first, end) in enumerate(spans):
        mask[lane, ..., first:end] = True
    return mask


def spans_of(mask: Tensor) -> Any:
    return getattr(mark_spans(mask), "spans", None)


def test_spans_are_noted_where_much_is_hidden_and_keys_are_neighbours() -> None:
    assert spans_of(mask_of([(0, 300), (3, 9), (299, 300)])) == [[0, 300], [3, 9], [299, 300]]
    assert spans_of(mask_of([(0, 300), (20, 260)])) is None
    mask = mask_of([(0, 300), (3, 9), (0, 5)])
    mask[1, ..., 20] = True
    assert spans_of(mask) is None


def test_lane_by_lane_is_the_same() -> None:
    for num_kv_heads in [1, 2, 4]:
        with case(num_kv_heads):
            torch.manual_seed(0)
            module: Any = torch.nn.Module()
            module.num_key_value_groups = 4 // num_kv_heads
            query = torch.randn(3, 4, 1, 8)
            key, value = torch.randn(2, 3, num_kv_heads, 300, 8)
            mask = mask_of([(0, 300), (3, 9), (100, 200)])
            expected, _ = sdpa_attention_forward(module, query, key, value, mask.clone(), scaling=0.3)
            out, _ = lane_attention(module, query, key, value, mark_spans(mask), scaling=0.3)
            torch.testing.assert_close(out, expected)
