"""Numbers and texts of records as they are shown."""

import pytest

from gencli.cli.explain.levels import level
from gencli.cli.explain.shown import probability, quoted


@pytest.mark.parametrize(
    ("p", "shown"),
    [(1.0, "1.000"), (0.372, ".372"), (0.00042, ".0004"), (2e-5, "2e-05"), (0.0, "0"), (None, "-")],
)
def test_a_probability_takes_few_characters(p, shown):
    assert probability(p) == shown


def test_a_token_is_quoted_without_control_characters():
    assert quoted(' a\n"') == '" a\\n\\""'
    assert quoted("\x1b[1m") == '"\\x1b[1m"'
    assert len(quoted("x" * 100)) == 26


def test_levels_are_those_of_the_legend():
    assert [level("probability", p) for p in (0.9, 0.5, 0.3, 0.05, 0.001, None)] == [0, 0, 1, 2, 3, 3]
