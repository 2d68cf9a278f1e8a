"""mirostat, entry 20."""

import math

from processors.registry import builtin_registry
from processors.testing.checks import View
from tests.processors.reference.twins import REFERENCE

INF = math.inf


def test_the_first_of_the_most_likely_stays_where_all_surprise_too_much(kept):
    for version in [1, 2]:
        assert kept("mirostat", {"version": version, "tau": 0}, [1.0, 3.0, -INF, 3.0]) == [1], version


def test_of_equal_tokens_the_formula_of_version_1_keeps_one_or_all(kept):
    for tau, count in [(2, 1), (3, 40)]:
        twin = REFERENCE["mirostat"]([1.5] * 40, builtin_registry().load("mirostat").Params(1, tau), View())
        assert kept("mirostat", {"version": 1, "tau": tau}, [1.5] * 40) == list(range(count)), tau
        assert sum(x > -INF for x in twin) == count, tau
