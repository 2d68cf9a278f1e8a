"""Rate and time left are counted from a run's events."""

import pytest

from gencli.core.events import Error, Finish, Timings, Token
from gencli.results.run_results import Meter, ProgressRate


def token(request, count, sample=0):
    return Token(request, sample, "", tuple(range(count)))


def finish(request, tokens, sample=0):
    return Finish(request, sample, "", "eos", None, None, 1, tokens, Timings(0, 1, 0))


def pace(total, *events, now, max_tokens=100):
    meter = Meter(total, max_tokens)
    for time, event in events:
        meter.add(event, time)
    return meter.pace(now)


def test_the_rate_begins_behind_the_first_tokens():
    assert pace(3, now=5) == ProgressRate(0, 3, None, None)
    assert pace(3, (5, token("1", 4)), now=6) == ProgressRate(0, 3, None, None)

    assert pace(1, (5, token("1", 4)), (7, token("1", 20)), now=7).speed == 10


def test_samples_are_as_long_as_allowed_or_as_those_that_ended():
    events = (0, token("1", 5)), (2, token("1", 20)), (2, token("2", 15))
    assert pace(3, *events, now=2).left == pytest.approx((3 * 100 - 40) / 17.5)

    events = (0, token("1", 10)), (1, finish("1", 20)), (2, token("2", 30)), (2, token("3", 5))
    # 20 each: the second is over it already, the third lacks 15, the fourth 20.
    assert pace(4, *events, now=3) == ProgressRate(1, 4, 15.0, pytest.approx(35 / 15))


def test_samples_that_fail_or_share_a_prompt_are_counted_apart():
    failed = Error("1", 0, "EmptySupport", "", "")
    events = (0, token("1", 10)), (1, failed), (1, token("2", 10)), (2, finish("2", 20))
    assert pace(3, *events, now=2) == ProgressRate(2, 3, 10.0, 2.0)

    events = (0, token("1", 1)), (1, token("1", 1, sample=1)), (2, finish("1", 9, sample=1))
    assert pace(2, *events, now=2).done == 1
