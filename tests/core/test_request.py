"""Requests, the input of a step, and events."""

from gencli.core.events import Drafted
from gencli.core.request import (
    FIXED_DRAFTS,
    Drafting,
    Feed,
    Guidance,
    Limits,
    Request,
    StepPlan,
    rope_factors,
)
from processors.request_values import MATCH, Verification

REJECTION = Verification("rejection")


def request(draw="gumbel", tokens=None, verification=MATCH):
    return Request("r", (1, 2, 3), draw=draw, drafting=Drafting("d", tokens, 0.0, verification))


def test_a_greedy_draw_matches_where_rejection_was_asked_for():
    assert request(verification=REJECTION).verification == REJECTION
    assert request("greedy", verification=REJECTION).verification == MATCH


def test_drafts_are_as_many_as_pay_only_where_they_decide_nothing():
    for verification, tokens, decides, num_drafts in (
        (MATCH, None, False, None),
        (MATCH, 7, False, 7),
        (REJECTION, None, True, FIXED_DRAFTS),
        (REJECTION, 7, True, 7),
    ):
        one = request(tokens=tokens, verification=verification)
        assert (one.drafts_decide, one.num_drafts) == (decides, num_drafts), (verification, tokens)


def test_a_companion_reads_the_negative_prompt_or_the_last_token():
    for guidance, is_on, prompt in (
        (Guidance(), False, (3,)),
        (Guidance(1.5), True, (3,)),
        (Guidance(cutoff=0.1), True, (3,)),
        (Guidance(1.5, negative=(8, 9)), True, (8, 9)),
        (Guidance(1.5, amateur="small"), True, (1, 2, 3)),
    ):
        assert (guidance.is_on, guidance.companion_prompt((1, 2, 3))) == (is_on, prompt), guidance


def test_a_time_limit_is_over_from_its_second_on():
    assert [Limits(max_time=2.0).is_over(seconds) for seconds in (1.9, 2.0)] == [False, True]
    assert not Limits().is_over(1e9)


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


def test_statistics_of_samples_add_up_by_position():
    total = Drafted(2, (2, 1), (1, 0), 0.5, 1.0) + Drafted(1, (1, 1, 1), (1, 1, 0), 0.25, 0.5, held="stage")
    assert total == Drafted(3, (3, 2, 1), (2, 1, 0), 0.75, 1.5, held="stage")


def test_the_speedup_is_that_over_plain_steps_where_there_are_some():
    measured = Drafted(4, (4,), (4,), 1.0, 3.0, timed=8, plain=4, plain_seconds=4.0)
    assert measured.speedup == (8 / 4.0) / (4 / 4.0)
    assert Drafted(4, (4,), (4,), 1.0, 3.0, timed=8, plain=2, plain_seconds=2.0).speedup is None
    assert Drafted(4, (), (), 0.0, 3.0, timed=8, plain=4, plain_seconds=4.0).speedup is None
