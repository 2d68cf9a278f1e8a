"""Lazy prefill of a draft model: the tail of a long text, and the whole once drafts are accepted."""

from itertools import product

from gencli.speculative.draft_model import ModelDrafter
from tests.speculative.test_tail_first import SIZE, Wrong, run


def test_useless_drafts_cost_3_percent_at_most_long_prompts_included():
    for rounds, cost in product((1, 4), (0.1, 0.5)):
        plain_texts, plain, _ = run(rounds=rounds)
        texts, seconds, draft = run(Wrong, rounds=rounds, cost=cost)
        assert texts == plain_texts, (rounds, cost)
        assert plain / seconds >= 0.97, (rounds, cost)
        assert sum(draft.fed) < 0.1 * SIZE, (rounds, cost)


def test_what_has_stood_in_one_text_holds_for_the_next():
    _, _, draft = run(ModelDrafter, rounds=2)
    assert 16 in draft.fed
    assert 16 not in draft.fed[len(draft.fed) // 2 :]
    _, _, draft = run(Wrong, tokens=3)  # with a fixed number of drafts a text is read at once
    assert draft.fed[:3] == [512, 512, SIZE - 1024 + 1]


def test_a_text_that_was_left_for_long_is_drafted_from_its_tail_again():
    _, _, draft = run(Wrong, max_tokens=1500)
    assert draft.fed.count(16) > 1
    assert max(draft.fed) == 16
