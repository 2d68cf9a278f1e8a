"""The cost of a draft token, fitted over steps of all sizes; guesses that bring less are left out."""

from gencli.engine.engine import Engine
from tests.engine.harness import TOKENIZER, events_of, ids_of
from tests.engine.test_jump import record
from tests.speculative.timed import Ticking, TimedRunner


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
