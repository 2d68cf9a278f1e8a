"""Feeds of different length share a pass without pads, and say what they say alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import transformers as hf

from gencli.core.request import Feed, StepPlan, room_for
from gencli.models.hf_runner import HFRunner
from gencli.models.kv.lane_batches import make_packed_batch
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
