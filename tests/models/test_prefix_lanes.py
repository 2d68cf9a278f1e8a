"""Lanes of a companion or draft model: what they keep, and what they copy from each other."""

from gencli.core.request import Feed, StepPlan
from gencli.models.model_runner import PrefixLanes
from gencli.models.other_runners import FakeRunner

TEXT = [*range(40)]


def cache_with(runner, **texts):
    """A cache whose lanes 0, 1, ... have read the texts."""
    cache = PrefixLanes(runner)
    for number, text in enumerate(texts.values()):
        lane = cache[number]
        runner.forward(StepPlan((Feed(number, 0, tuple(text), num_logits=0),)))
        lane.extend(text)
    return cache


def test_the_first_use_of_a_lane_empties_it():
    runner = FakeRunner()
    runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
    assert len(PrefixLanes(runner)[0]) == runner.length(0) == 0


def test_a_lane_keeps_its_own_prefix_and_copies_a_longer_one():
    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT)
    cache.reuse(cache[0], [*TEXT[:30], 99])
    assert (cache[0].tokens, runner.length(0)) == (TEXT[:30], 30)

    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT[:5], other=TEXT)
    cache.reuse(cache[0], [*TEXT[:30], 99])
    assert cache[0].tokens == TEXT[:30]
    assert (runner.length(0), runner.length(1)) == (30, 40)

    cache = cache_with(FakeRunner(), own=TEXT[:2], other=TEXT)
    cache.reuse(cache[0], [*TEXT[:9], *[99] * 20])
    assert len(cache[0]) == 2  # a short prefix is not worth a copy


def test_lanes_of_another_salt_share_nothing():
    runner = FakeRunner()
    cache = cache_with(runner, own=TEXT, other=TEXT)
    cache.reuse(cache[0], TEXT[:30], "a")
    assert len(cache[0]) == runner.length(0) == 0
    cache.reuse(cache[1], TEXT[:30])
    assert cache[1].tokens == TEXT[:30]
