"""No step feeds more tokens than it may, drafts included; and what is cut or waits changes no text."""

from tests.engine.test_step_tokens import ROWS, requests, run

POLICIES = ["match", "rejection", "lossy-typical"]


def check(limit, policies):
    rows = list(requests(policies))
    expected, most, _ = run(rows, max_batch=ROWS)
    found, stood, steps = run(rows, max_batch=ROWS, step_tokens=limit)
    assert found == expected, (limit, policies)
    # A token for each, one of a prompt, and the drafts of one text if they must not be cut.
    alone = ROWS + (5 if policies != ["match"] else 1)
    assert max(tokens for tokens, _ in steps) <= max(limit, alone), (limit, policies)
    assert 0 < stood <= most, (limit, policies)


def test_no_step_is_larger_than_the_limit_and_texts_are_the_same():
    for limit, policies in ((9, POLICIES), (16, ["match"]), (24, ["rejection"])):
        check(limit, policies)


def test_companions_count_as_well():
    rows = list(requests(["match"], guided=True))
    expected, _, _ = run(rows, max_batch=ROWS)
    found, stood, steps = run(rows, max_batch=ROWS, step_tokens=40)
    assert found == expected
    assert stood
    assert max(tokens for tokens, _ in steps) <= 40


def test_texts_that_drafts_decide_take_turns():
    rows = list(requests(["rejection"]))[:ROWS]
    found, _, steps = run(rows, max_batch=ROWS, step_tokens=12)
    assert max(lanes for _, lanes in steps) < ROWS
    assert len({len(ids) for ids, _ in found.values()}) == 1
