"""How many draft tokens a step gets, by what they cost and how often they are accepted."""

import time
from itertools import product

import pytest
import torch

from gencli.core.request import Drafting
from gencli.engine.engine import Engine
from gencli.models.other_runners import FakeRunner
from gencli.speculative.adaptive_drafts import (
    AdaptiveDrafter,
    Costs,
    StepCostModel,
    tokens_per_step,
    work_clock,
)
from gencli.speculative.drafter import DraftAsk, MeasuredStep
from tests.engine.harness import TOKENIZER, events_of, ids_of, request
from tests.speculative.timed import Ticking, TimedDrafter, TimedRunner

PROMPT = tuple(TOKENIZER.encode("abc"))


def timed(num_tokens, *, right=None, cost=0.1, row=0.05, rows=1, tokens=None, known=()):
    """Tokens by request, what the clock says at the end, and the drafter."""
    clock = Ticking()
    inner = TimedDrafter(known, clock, right=right or 0.0, cost=cost)
    drafter = None if right is None else AdaptiveDrafter(inner, clock=clock)
    runner = TimedRunner(clock, row=row)
    on = Engine(runner, TOKENIZER, drafter=drafter, clock=clock, max_batch=rows)
    asked = {"chain": "ignore_eos=true", "max_tokens": num_tokens, "drafting": Drafting(tokens=tokens)}
    ids = ids_of(events_of([request("abc", key=i, **asked) for i in range(rows)], on=on))
    return ids, clock.now, inner


def gain(num_tokens, **options):
    """How much faster it is with the drafts, and the drafter."""
    rows = options.get("rows", 1)
    plain_ids, plain, _ = timed(num_tokens, rows=rows)
    ids, seconds, inner = timed(num_tokens, known=[PROMPT + run for run in plain_ids.values()], **options)
    assert ids == plain_ids
    return plain / seconds, inner


def warm():
    """A drafter that has seen four plain steps of a second, and what it is asked."""
    clock = Ticking()
    one = AdaptiveDrafter(TimedDrafter([], clock, cost=0.01), clock=clock)
    one.admit(0, request("abc"))
    for _ in range(4):
        one.measure(MeasuredStep(1, 0, 0, 1.0))
    return one, DraftAsk(0, PROMPT, 8)


def test_neither_drafts_of_others_nor_a_single_slow_step_end_drafting():
    one, ask = warm()
    for _ in range(3):
        assert one.propose([ask]) != [()]
        one.observe(0, proposed=1, accepted=1)
        one.measure(MeasuredStep(1, 1, 1, 1.0))
    for _ in range(20):
        one.measure(MeasuredStep(1, 4, 0, 50.0))
    assert one.propose([ask]) != [()]
    for slow in range(6):
        one, ask = warm()
        for step in range(8):
            (run,) = one.propose([ask])
            assert run, slow
            one.observe(0, proposed=len(run), accepted=len(run))
            one.measure(MeasuredStep(1, len(run), len(run), 30.0 if step == slow else 1.0))


def test_a_cost_is_the_lower_quartile_and_what_a_step_takes_beyond_its_drafts_is_not_believed():
    costs = Costs()
    costs.add_verify(2, 40.0, longest=2)
    assert costs.verify(2) == 2
    costs.add_verify(6, 0.5, longest=6)
    assert costs.verify(2) == 0.5  # more drafts take no less
    for slow in (1, 2, 3):
        costs = Costs()
        for step in range(7):
            costs.add_draft(30.0 if step < slow else 0.1)
            costs.add_plain(1, 30.0 if step < slow else 2.0)
        assert (costs.draft(), costs.plain(1)) == (0.1, 2.0), slow


def test_passes_that_propose_nothing_are_held_against_it():
    clock = Ticking()

    class Doubting(TimedDrafter):
        def propose(self, asks):
            super().propose(asks)
            return [[] for _ in asks]

    inner = Doubting([], clock, cost=0.5)
    on = Engine(TimedRunner(clock), TOKENIZER, drafter=AdaptiveDrafter(inner, clock=clock), clock=clock)
    on.submit(request("abc", chain="ignore_eos=true", max_tokens=200))
    list(on.run())
    assert clock.now < 200 / 0.97


def test_a_number_is_a_number_whatever_it_costs():
    _, inner = gain(40, right=0.0, cost=3.0, tokens=3)
    assert {most for length, most in inner.asked if length < 30} == {3}
    for acceptance, length, tokens in ((0.0, 4, 1.0), (1.0, 4, 5.0), (0.5, 2, 1.75)):
        assert tokens_per_step(acceptance, length) == pytest.approx(tokens), (acceptance, length)


SIZES = (1, 2, 5, 1, 3, 9, 1, 4, 2, 7, 1, 6)


def fitted(sizes=SIZES, *, base=0.0, slope=0.0):
    model = StepCostModel()
    for size in sizes:
        model.observe(size, base + slope * size)
    return model


def test_it_is_the_share_of_a_plain_step_that_one_token_per_text_takes():
    for (base, slope), lanes in product(((1.0, 0.0), (3.0, 1.0), (0.5, 2.0), (0.0, 1.0)), (1, 4)):
        share = slope * lanes / (base + slope * lanes)
        assert fitted(base=base, slope=slope).draft_cost(lanes) == pytest.approx(share), (base, slope, lanes)
    for sizes in ((), (1, 2), (3,) * 20):  # without steps of several sizes it is none
        assert fitted(sizes, slope=1.0).draft_cost(1) == 0, sizes
    assert fitted(base=100.0, slope=-1.0).draft_cost(4) == 0  # more tokens are never less work


def test_old_steps_fade():
    model = fitted(base=3.0, slope=1.0)
    for _ in range(20):
        for size in SIZES:
            model.observe(size, 5.0)
    assert model.draft_cost(1) < 0.001


def test_it_is_the_time_of_the_thread_on_a_cpu_and_the_clock_on_the_wall_beside_an_accelerator():
    for kind in ("cuda", "mps"):
        assert work_clock(torch.device(kind)) is time.perf_counter, kind
    is_fine = time.get_clock_info("thread_time").resolution <= 1e-5
    assert work_clock(torch.device("cpu")) is (time.thread_time if is_fine else time.perf_counter)


def test_a_clock_that_is_given_times_all():
    class Noting(TimedDrafter):
        def measure(self, step):
            seen.append(step.seconds)

    for clock in (Ticking(), None):
        seen = []
        on = Engine(FakeRunner(), TOKENIZER, drafter=Noting([], clock or Ticking()), clock=clock)
        on.submit(request("abc", chain="ignore_eos=true", max_tokens=4))
        list(on.run())
        assert all(seconds == 0 for seconds in seen) == bool(clock)
