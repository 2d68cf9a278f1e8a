"""What stands beside tokens is that of the attempt that counts."""

import pytest

from gencli.core.events import Error, Finish, Timings, Token
from gencli.results.run_results import ByToken


def token(*ids, sample=0):
    return Token("r", sample, "", ids)


def finish(count):
    return Finish("r", 0, "", "eos", None, None, 1, count, Timings(0, 0, 0))


@pytest.mark.parametrize("end", [finish(2), Error("r", 0, "E", "m", "", 2)])
def test_at_its_end_a_sample_has_the_last_attempt(end):
    beside = ByToken(lambda event: event.ids)
    for event in (token(1, 2, 3), token(9, sample=1), token(4), token(5), end):
        beside.add(event)
    assert (beside.of(0), beside.of(1), beside.of(2)) == ((4, 5), (9,), ())


def test_a_sample_with_fewer_entries_than_tokens_keeps_them():
    beside = ByToken(lambda event: event.ids)
    for event in (token(1), finish(3)):
        beside.add(event)
    assert beside.of(0) == (1,)
