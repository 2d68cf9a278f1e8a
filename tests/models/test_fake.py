"""The fake runner: a table, and a strict reading of the contract."""

from __future__ import annotations

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.kv.lane_lengths import ContractError
from gencli.models.model_runner import ModelRunner
from gencli.models.other_runners import FakeRunner
from tests.models.cases import case

FIRST_OF_SEED_7 = [1.6464473009109497, -1.4013984203338623, -1.0695080757141113]


def feed(runner: ModelRunner, *feeds: Feed) -> torch.Tensor:
    return runner.forward(StepPlan(feeds))


def test_rows_are_those_of_the_wanted_tokens_in_feed_order() -> None:
    runner = FakeRunner(vocab_size=11)
    logits = feed(runner, Feed(3, 0, (1, 2, 3), 2), Feed(0, 0, (4, 5), 0), Feed(1, 0, (6,)))
    expected = runner.table[[2, 3, 6]]
    assert torch.equal(logits, expected)
    logits.zero_()  # they are the caller's to edit
    assert torch.equal(runner.table[[2, 3, 6]], expected)


def test_the_table_is_the_same_everywhere() -> None:
    # Golden texts depend on these bits; integers and exact float32 sums only, so no platform differs.
    table = FakeRunner(vocab_size=300, seed=7).table
    assert table[0, :3].tolist() == FIRST_OF_SEED_7
    assert not torch.equal(table, FakeRunner(vocab_size=300, seed=8).table)


def test_the_table_is_bell_shaped_and_uncorrelated() -> None:
    table = FakeRunner(vocab_size=400, scale=3.0).table
    assert table.mean().item() == pytest.approx(0.0, abs=0.05)
    assert table.std().item() == pytest.approx(3.0, rel=0.02)
    assert torch.corrcoef(table[:100]).fill_diagonal_(0).abs().max() < 0.3  # 6 sigma of 1 / sqrt(400)


def test_lengths_follow_feed_keep_fork_and_release() -> None:
    runner = FakeRunner()
    feed(runner, Feed(0, 0, (1, 2, 3, 4), 0))
    runner.truncate(0, 2)
    runner.fork(0, 5)
    feed(runner, Feed(5, 2, (9,)))
    runner.release(0)
    assert [runner.length(lane) for lane in (0, 5)] == [0, 3]


def test_a_plan_that_breaks_the_contract_is_refused() -> None:
    for feeds, message in [
        ((), "at least one feed"),
        ((Feed(0, 0, ()),), "fed no token"),
        ((Feed(0, 1, (1,)),), "holds 0 tokens, the feed starts at 1"),
        ((Feed(0, 0, (1, 2), 3),), "3 rows wanted of 2"),
        ((Feed(0, 0, (1,)), Feed(0, 1, (1,))), "fed twice"),
        ((Feed(9, 0, (1,)),), "lane 9 is not one of 0..3"),
        ((Feed(0, 0, (1,) * 17),), "exceed the context of 16"),
    ]:
        with case(feeds, message):
            runner = FakeRunner(context=16, max_lanes=4)
            with pytest.raises(ContractError, match=message):
                feed(runner, *feeds)
            assert runner.length(0) == 0


def test_lane_calls_that_break_the_contract_are_refused() -> None:
    runner = FakeRunner(max_lanes=2)
    with pytest.raises(ContractError, match="cannot keep 1"):
        runner.truncate(0, 1)
    with pytest.raises(ContractError, match="onto itself"):
        runner.fork(1, 1)
    with pytest.raises(ContractError, match=r"not one of 0\.\.1"):
        runner.release(2)


def test_an_unknown_token_id_is_the_inputs_fault() -> None:
    for token in [-1, 11]:
        with case(token), pytest.raises(ModelError, match=f"Token id {token} is unknown"):
            feed(FakeRunner(vocab_size=11), Feed(0, 0, (token,)))
