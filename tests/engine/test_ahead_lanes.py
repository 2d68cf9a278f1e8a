"""Whoever uses the lanes of a runner that runs ahead finds in them what was fed, whatever was guessed."""

import torch

from gencli.core.request import Feed, StepPlan
from gencli.engine.run_ahead import RunAhead
from gencli.engine.scheduler import Scheduler
from gencli.models.other_runners import FakeRunner
from tests.engine.sequences import sequence

PROMPT = (5, 6, 7)
DRAWN = 3  # the token that each sequence draws


class Fed(FakeRunner):
    """Notes the lanes of each pass of the host's tokens."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def forward(self, plan):
        self.passes.append([feed.lane for feed in plan.feeds])
        return super().forward(plan)


def guessed(*, read=DRAWN):
    """A runner with three lanes, whose next tokens are fed ahead, and read by the host."""
    inner = Fed()
    runner, scheduler = RunAhead(inner), Scheduler(max_batch=3, step_tokens=None)
    scheduler.running = [sequence(PROMPT, slot=lane, computed=len(PROMPT)) for lane in range(3)]
    runner.forward(StepPlan(tuple(Feed(lane, 0, PROMPT) for lane in range(3))))
    runner.launch([(one, ()) for one in scheduler.running], torch.full((3, 1), DRAWN), scheduler)
    runner.read([[read]] * 3)
    inner.passes.clear()
    return runner, inner


def feed(lane, *tokens, num_logits=1):
    return Feed(lane, len(PROMPT), tokens, num_logits)


def rows(*tokens):
    return FakeRunner().table[list(tokens)]


def lengths(inner):
    return [inner.length(lane) for lane in range(3)]


def test_logits_are_in_the_order_of_the_feeds_wherever_they_come_from():
    for feeds, own in (
        ([feed(lane, DRAWN) for lane in range(3)], []),
        ([feed(2, DRAWN), feed(0, DRAWN)], []),
        ([feed(1, 9), feed(0, DRAWN)], [[1]]),
        ([feed(1, DRAWN, 8, 9, num_logits=3), feed(2, DRAWN)], [[1]]),
        ([feed(0, DRAWN), Feed(4, 0, (1, 2), 0), feed(1, DRAWN), Feed(5, 0, (1, 2), 2)], [[4, 5]]),
        ([feed(0, 8), feed(1, 9)], [[0, 1]]),
    ):
        runner, inner = guessed()
        wanted = [token for one in feeds for token in one.tokens[len(one.tokens) - one.num_logits :]]
        assert torch.equal(runner.forward(StepPlan(tuple(feeds))), rows(*wanted)), (feeds, own)
        assert inner.passes == own, (feeds, own)
        fed = {one.lane: one.end for one in feeds}
        assert lengths(inner) == [fed.get(lane, 3) for lane in range(3)], (feeds, own)


def test_a_token_that_was_not_drawn_is_fed_anew_and_states_are_not_taken_from_the_guess():
    for read in (-1, 4):
        runner, inner = guessed(read=read)
        assert torch.equal(runner.forward(StepPlan((feed(0, 8),))), rows(8)), read
        assert lengths(inner) == [4, 3, 3], read
    runner, inner = guessed()
    logits, inside = runner.forward_layers(StepPlan((feed(1, DRAWN),)), (), {1})
    assert torch.equal(logits, inside.states)
    assert lengths(inner) == [3, 4, 3]


def test_a_lane_holds_what_was_fed_to_whoever_changes_it():
    runner, inner = guessed()
    runner.truncate(0, 3)
    runner.fork(1, 2)
    assert lengths(inner) == [3, 4, 3]
    runner.forget(1)
    assert lengths(inner) == [3, 3, 3]
    runner.release(1)
    assert torch.equal(runner.forward(StepPlan((feed(0, DRAWN), feed(2, DRAWN)))), rows(DRAWN, DRAWN))
    assert inner.passes == [[0, 2]]


def test_guesses_that_come_untrue_end_until_they_would_have_come_true():
    inner, launched = Fed(), []
    runner, scheduler = RunAhead(inner), Scheduler(max_batch=1, step_tokens=None)
    for number in range(60):
        one = sequence(range(number + 1), slot=0, computed=number + 1)
        scheduler.running = [one]
        runner.forward(StepPlan((Feed(0, number, (number,)),)))
        before = runner.num_launched
        runner.launch([(one, ())], torch.tensor([[number + 1]]), scheduler)
        runner.read([[number + 1 if not 20 <= number < 30 else 99]])
        launched.append(runner.num_launched > before)
    assert all(launched[:20])
    assert launched[20:40].count(False) > 10
    assert all(launched[45:])
