"""What holds for every stage that truncates, taken from the registry."""

import itertools

from processors.catalog import BUILTIN
from tests.processors.stages.test_truncating import (
    CUTS_AGAIN,
    IDEMPOTENT,
    INF,
    LOOSER,
    TRUNCATING,
    rows,
    settings,
)


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


def main_field(stage):
    return next(spec for spec in BUILTIN if spec.name == stage).params.main()


def test_a_looser_value_keeps_a_superset(kept):
    for stage in TRUNCATING:
        for row in rows():
            sets = [set(kept(stage, {main_field(stage): value}, row)) for value in LOOSER[stage]]
            assert all(tight <= loose for tight, loose in itertools.pairwise(sets)), stage


def test_a_larger_keep_keeps_a_superset_and_never_fewer(kept):
    for stage in TRUNCATING:
        tight = {main_field(stage): LOOSER[stage][0]}
        for row in rows():
            num_legal = sum(logit > -INF for logit in row)
            sets = [set(kept(stage, {**tight, "keep": keep}, row)) for keep in (1, 2, 7, 250)]
            assert all(few <= many for few, many in itertools.pairwise(sets)), stage
            assert all(
                len(ids) >= min(keep, num_legal) for ids, keep in zip(sets, (1, 2, 7, 250), strict=True)
            ), stage


def test_a_most_likely_token_stays(kept):
    for stage in sorted(set(TRUNCATING) - {"typical"}):
        for row, params in itertools.product(rows(), settings(stage)):
            assert row.index(max(row)) in kept(stage, params, row), stage


def test_a_constant_added_to_all_logits_changes_nothing(kept):
    for stage in TRUNCATING:
        for row, params in itertools.product(rows(4), settings(stage)):
            assert kept(stage, params, [logit + 128 for logit in row]) == kept(stage, params, row), stage


def test_a_second_pass_changes_nothing(run):
    for stage in sorted(IDEMPOTENT):
        for row, params in itertools.product(rows(), settings(stage)):
            once = run(stage, params, row)
            assert run(stage, params, once) == once, stage
