"""Stages on rows of one token or none, and on rows as wide as a vocabulary, with ties and masked tokens."""

from tests.slow.processors.stages.test_rows import check, wide


def test_wide_rows_of_any_spread_are_those_of_the_twin(run):
    check(run, [wide(1.0, has_ties=False), *map(wide, (0.0, 0.01, 3.0, 8.0))])
