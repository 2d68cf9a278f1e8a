"""Feeds of different length share a pass without pads, and say what they say alone.

How feeds are grouped into passes and laid out. Attention lane by lane is the library's attention under a
mask.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from gencli.core.request import Feed, StepPlan
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_batches import (
    fill_gaps,
    lane_attention,
    make_packed_batch,
    make_padded_batch,
    mark_spans,
    split_feeds,
)
from gencli.models.kv.lane_buffers import room_for
from tests.models.cases import case
from tests.models.tiny_models import CONFIGS, VOCAB, base

CPU = torch.device("cpu")
_SIZES: dict[str, Any] = {"mixtral": {"num_local_experts": 4}, "gemma": {"head_dim": 8}}


@cache
def configs() -> dict[str, Any]:
    return {config.model_type: config for config in (make() for make in CONFIGS.values())}


# Lane, tokens it holds, tokens it is fed: prompts beside single tokens and drafts, with idle lanes between.
STEP = ((0, 9, 1), (1, 30, 4), (2, 3, 1), (4, 0, 21), (5, 300, 1), (6, 41, 4), (8, 2, 2))


def build(kind: str, implementation: str | None) -> Any:
    config = configs().get(kind) or hf.AutoConfig.for_model(kind, **base(**_SIZES.get(kind, {})))
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()


def text(lane: int, length: int) -> tuple[int, ...]:
    return tuple((7 * i + 13 * lane) % VOCAB for i in range(length))


def check_logits(kind: str, implementation: str | None) -> None:
    """One row of tokens gives the logits of each lane alone."""
    model = build(kind, implementation)
    together, alone = HFRunner(model, max_lanes=9), HFRunner(model, max_lanes=1)
    for lane, held, _ in STEP:
        if held:
            together.forward(StepPlan((Feed(lane, 0, text(lane, held), 0),)))
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    feeds = [
        Feed(lane, held, text(lane, held + fed)[held:], num_logits=fed if fed < 5 else 1)
        for lane, held, fed in STEP
    ]
    rows = together.forward(StepPlan(tuple(feeds)))
    hook.remove()
    assert shapes == [(1, sum(fed for *_, fed in STEP))]
    for feed, found in zip(feeds, rows.split([feed.num_logits for feed in feeds]), strict=True):
        whole = text(feed.lane, feed.start + len(feed.tokens))
        expected = alone.forward(StepPlan((Feed(0, 0, whole, feed.num_logits),)))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        alone.release(0)


def test_a_row_without_wanted_logits_gives_none() -> None:
    runner = HFRunner(build("llama", None), max_lanes=2)
    assert runner.forward(StepPlan((Feed(0, 0, (1, 2), 0), Feed(1, 0, (3,), 0)))).shape == (0, VOCAB)


def test_feeds_stand_by_width_and_lane() -> None:
    feeds = (Feed(0, 4, (1,)), Feed(1, 0, (7, 8, 9), 2), Feed(3, 2, (5,)))
    batch = make_packed_batch(feeds, CPU, room=room_for(feeds), pad_budget=16)
    assert [feed.lane for feed in batch.feeds] == [1, 0, 3]
    assert batch.ids.tolist() == [[7, 8, 9, 1, 5]]
    assert batch.positions.tolist() == [[0, 1, 2, 4, 2]]
    assert isinstance(batch.wanted, torch.Tensor)
    assert batch.wanted.tolist() == [1, 2, 3, 4]
    assert batch.target is not None
    assert [part.tolist() for part in batch.target] == [[1, 1, 1, 0, 3], [0, 1, 2, 4, 2]]


def test_lanes_of_a_split_are_neighbours_or_filled_up_or_copied() -> None:
    def lanes(*numbers: int) -> tuple[Any, Any]:
        feeds = (Feed(9, 0, (1, 2)), *(Feed(lane, 0, (1,)) for lane in numbers))
        split = make_packed_batch(feeds, CPU, room=room_for(feeds), pad_budget=16).query_splits[1]
        kept = None if split.kept is None else split.kept.tolist()
        return split.lanes if isinstance(split.lanes, slice) else split.lanes.tolist(), kept

    assert lanes(3, 4, 5) == (slice(3, 6), None)
    assert lanes(3, 5) == (slice(3, 6), [0, 2])
    assert lanes(0, 7) == ([0, 7], None)


def feed(lane: int, length: int, start: int = 0) -> Feed:
    return Feed(lane, start, tuple(range(1, length + 1)))


def test_feeds_share_a_pass_while_pads_are_few() -> None:
    for lengths, passes in [
        ([1, 1, 1], [[0, 1, 2]]),
        ([5, 1, 5], [[0, 1, 2]]),  # 4 pads
        ([200, 1, 1], [[0], [1, 2]]),
        ([17, 1], [[0, 1]]),  # 16 pads: the budget
        ([18, 1], [[0], [1]]),
        ([100, 90, 1, 90], [[0], [1, 3], [2]]),  # 20 pads
        ([100, 99, 98, 97, 80], [[0, 1, 2, 3], [4]]),  # 6 pads
    ]:
        with case(lengths, passes):
            feeds = [feed(lane, length) for lane, length in enumerate(lengths)]
            groups = split_feeds(feeds, pad_budget=16)
            assert [[member.lane for member in group] for group in groups] == passes


def test_short_feeds_are_padded_on_the_left() -> None:
    feeds = (Feed(2, 0, (7, 8, 9)), Feed(5, 40, (6,)))
    batch = make_padded_batch(feeds, CPU, room=room_for(feeds))
    assert batch.ids.tolist() == [[7, 8, 9], [0, 0, 6]]
    assert batch.positions.tolist() == [[0, 1, 2], [38, 39, 40]]
    assert (batch.start, batch.kv_length, batch.room) == (None, 41, (6, 41))
    assert isinstance(batch.lanes, torch.Tensor)
    assert batch.target is not None
    assert [part.tolist() for part in batch.target] == [[2, 2, 2, 5], [0, 1, 2, 40]]
    assert batch.source is not None
    assert [part.tolist() for part in batch.source] == [[0, 0, 0, 1], [0, 1, 2, 2]]


def test_few_idle_lanes_between_others_become_rows_of_pads() -> None:
    for lanes, filled in [
        ([3], [3]),
        ([0, 1, 3], [0, 1, 2, 3]),
        ([0, 3], [0, 1, 2, 3]),
        ([0, 4], [0, 4]),  # more idle lanes than busy ones
    ]:
        with case(lanes, filled):
            feeds = tuple(feed(lane, 2, start=5) for lane in lanes)
            rows = fill_gaps(feeds, pad_budget=16)
            assert [row.lane for row in rows] == filled
            assert [row for row in rows if row.tokens] == list(feeds)
            assert make_padded_batch(rows, CPU, room=room_for(feeds)).wanted == 1


def test_an_idle_lane_is_not_worth_a_long_row_of_pads() -> None:
    feeds = (feed(0, 17), feed(2, 17))
    assert fill_gaps(feeds, pad_budget=16) == feeds
    feeds = (feed(0, 5), feed(1, 2))  # positions of pads are never negative
    assert make_padded_batch(feeds, CPU, room=room_for(feeds)).positions[1].tolist() == [0, 0, 0, 0, 1]


def test_neighbours_of_equal_length_are_one_rectangle() -> None:
    feeds = (feed(3, 1, start=9), feed(4, 1, start=9))
    batch = make_padded_batch(feeds, CPU, room=room_for(feeds))
    assert (batch.lanes, batch.start, batch.target, batch.source) == (slice(3, 5), 9, None, None)


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
