"""An explanation says what the stages did; who decided is who, left out of a fresh run, changes the token."""

import pytest

from tests.slow.processors.explain.test_rows import check


@pytest.mark.parametrize("seed", range(1, 8))
def test_who_decided_and_who_was_forgone_are_those_of_more_fresh_runs(seed):
    check(seed)
