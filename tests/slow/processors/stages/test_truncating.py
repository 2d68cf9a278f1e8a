"""What holds for every stage that truncates, taken from the registry."""

import itertools

from tests.processors.stages.test_truncating import CUTS_AGAIN, rows, settings


def test_a_second_pass_of_the_others_may_cut_more(run):
    for stage in sorted(CUTS_AGAIN):
        passes = [
            (once := run(stage, params, row), run(stage, params, once))
            for row, params in itertools.product(rows(), settings(stage))
        ]
        assert any(once != twice for once, twice in passes), stage
