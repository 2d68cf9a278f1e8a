"""A request's values decide how its drafts are verified and what its companion reads."""

from gencli.core.request import FIXED_DRAFTS, Drafting, Guidance, Limits, Request
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
