"""The plan of a step: its feeds say which rows of logits there will be."""

from gencli.core.request import Feed, StepPlan, rope_factors


def test_drafts_are_the_tokens_behind_the_first_with_logits():
    for num_logits, drafts in ((0, ()), (1, ()), (3, (4, 5))):
        assert Feed(0, 7, (2, 3, 4, 5), num_logits).drafts == drafts, (num_logits, drafts)


def test_a_plan_counts_rows_and_tokens():
    plan = StepPlan((Feed(0, 0, (1, 2, 3), 0), Feed(4, 9, (1,)), Feed(2, 5, (1, 2, 3), 3)))
    assert (plan.num_rows, plan.num_tokens) == (4, 7)


def test_rotary_factors_change_beyond_a_switch():
    for length, factors in ((1, 0), (48, 0), (49, 1), (96, 1), (97, 2)):
        assert rope_factors(length, (48, 96)) == factors, (length, factors)
        assert rope_factors(length, ()) == 0, (length, factors)
