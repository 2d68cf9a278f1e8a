"""With the next step launched before the last one is read, every event of every step is what it was."""

import random

import pytest

from tests.engine.ahead_cases import play, random_script


@pytest.mark.parametrize("seed", range(40))
def test_random_requests_have_the_same_events_step_by_step(seed):
    rng = random.Random(seed)
    script = random_script(rng, 24)
    options = {"max_batch": rng.choice((3, 4, 8)), "step_tokens": rng.choice((8, 40, None))}
    plain, _ = play(script, run_ahead=False, **options)
    ahead, on = play(script, run_ahead=True, **options)
    assert ahead == plain
    print(
        on.ahead.num_launched,
        on.ahead.num_used,
        len(plain),
        sum(map(len, plain)),
        sum(isinstance(e, str) for s in plain for e in s),
    )
