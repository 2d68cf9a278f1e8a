"""What a draft costs is read off steps of all sizes; guesses that bring less are left out."""

import pytest

from gencli.core.events import Token
from gencli.engine.engine import Engine
from gencli.speculative.step_cost import StepCostModel
from tests.engine.harness import TOKENIZER
from tests.engine.test_jump import record
from tests.speculative.timed import Ticking, TimedRunner

SIZES = (1, 2, 5, 1, 3, 9, 1, 4, 2, 7, 1, 6)


def price(sizes=SIZES, *, base=0.0, slope=0.0):
    found = StepCostModel()
    for size in sizes:
        found.add(size, base + slope * size)
    return found


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(("base", "slope"), [(1.0, 0.0), (3.0, 1.0), (0.5, 2.0), (0.0, 1.0)])
def test_it_is_what_a_token_takes_against_a_text_in_a_plain_step(base, slope, lanes):
    assert price(base=base, slope=slope).of(lanes) == pytest.approx(slope * lanes / (base + slope * lanes))


@pytest.mark.parametrize("sizes", [(), (1, 2), (3,) * 20])
def test_without_steps_of_several_sizes_it_is_none(sizes):
    assert price(sizes, slope=1.0).of(1) == 0


def test_more_tokens_are_never_less_work():
    assert price(base=100.0, slope=-1.0).of(4) == 0


def test_old_steps_fade():
    found = price(base=3.0, slope=1.0)
    for _ in range(20):
        for size in SIZES:
            found.add(size, 5.0)
    assert found.of(1) < 0.001


def texts(row, *, jump="auto"):
    """The ids of six records one after the other, and the tokens that were fed in all."""
    clock, ids, fed = Ticking(), {}, 0

    class Noting(TimedRunner):
        def forward(self, plan):
            nonlocal fed
            fed += plan.num_tokens
            return super().forward(plan)

    on = Engine(Noting(clock, row=row), TOKENIZER, max_batch=1, clock=clock)
    for key in range(6):
        on.submit(record(str(key), seed=key, jump=jump))
    for event in on.run():
        if isinstance(event, Token):
            ids[event.request] = (*ids.get(event.request, ()), *event.ids)
    return ids, fed


def test_guesses_are_made_while_they_cost_little():
    plain, least = texts(0.0, jump="off")
    cheap, most = texts(0.0)
    dear, fewer = texts(0.95)
    assert cheap == dear == plain
    assert most - least > 2 * (fewer - least)
