"""The scheduler: what each step feeds, its limit of tokens, the queue, and a full memory."""

from gencli.models.other_runners import FakeRunner
from tests.engine.harness import engine, texts
from tests.engine.test_scheduler import REQUESTS, ROWS, Sudden, requests, run

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
    for limit, policies in ((9, POLICIES), (24, ["rejection"])):
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


def test_texts_stay_wherever_the_memory_ends():
    expected = texts(REQUESTS)
    for lanes in (1, 2, 3, 5, 8):
        on = engine(runner=FakeRunner(memory_lanes=lanes), max_batch=8)
        assert texts(REQUESTS, on=on) == expected, lanes
        assert bool(on.notices) == (lanes < 8), lanes
    for steps in ((1,), (4,), (3, 4, 5), (2, 9, 17)):
        runner = Sudden(*steps)
        assert texts(REQUESTS, runner=runner, max_batch=8) == expected, steps
        assert runner.num_frees == len(steps), steps
