"""What holds for every stage that truncates, taken from the registry."""

import itertools

from tests.processors.stages.test_truncating import CUTS_AGAIN, INF, TRUNCATING, rows, settings


def test_a_second_pass_of_the_others_may_cut_more(run):
    for stage in sorted(CUTS_AGAIN):
        passes = [
            (once := run(stage, params, row), run(stage, params, once))
            for row, params in itertools.product(rows(), settings(stage))
        ]
        assert any(once != twice for once, twice in passes), stage


def test_what_stays_keeps_its_logit_and_what_was_masked_stays_so(run):
    for stage in TRUNCATING:
        for row, params in itertools.product(rows(), settings(stage)):
            assert all(new in (old, -INF) for old, new in zip(row, run(stage, params, row), strict=True)), (
                stage
            )
