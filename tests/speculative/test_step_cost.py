"""The cost of a draft token, fitted over steps of all sizes; guesses that bring less are left out."""

from itertools import product

import pytest

from gencli.engine.engine import Engine
from gencli.speculative.costs import StepCostModel
from tests.engine.harness import TOKENIZER, events_of, ids_of
from tests.engine.test_jump import record
from tests.speculative.timed import Ticking, TimedRunner

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


def texts(row, *, jump="auto"):
    """The ids of six records one after the other, and the tokens that were fed in all."""
    clock, fed = Ticking(), 0

    class Noting(TimedRunner):
        def forward(self, plan):
            nonlocal fed
            fed += plan.num_tokens
            return super().forward(plan)

    on = Engine(Noting(clock, row=row), TOKENIZER, max_batch=1, clock=clock)
    return ids_of(events_of([record(str(key), seed=key, jump=jump) for key in range(6)], on=on)), fed


def test_guesses_are_made_while_they_cost_little():
    plain, least = texts(0.0, jump="off")
    cheap, most = texts(0.0)
    dear, fewer = texts(0.95)
    assert cheap == dear == plain
    assert most - least > 2 * (fewer - least)
