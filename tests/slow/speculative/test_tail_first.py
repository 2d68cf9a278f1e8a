"""Lazy prefill of a draft model: the tail of a long text, and the whole once drafts are accepted."""

from itertools import product

from tests.speculative.test_tail_first import SIZE, Wrong, run


def test_useless_drafts_cost_3_percent_at_most_long_prompts_included():
    for rounds, cost in product((1, 4), (0.1, 0.5)):
        plain_texts, plain, _ = run(rounds=rounds)
        texts, seconds, draft = run(Wrong, rounds=rounds, cost=cost)
        assert texts == plain_texts, (rounds, cost)
        assert plain / seconds >= 0.97, (rounds, cost)
        assert sum(draft.fed) < 0.1 * SIZE, (rounds, cost)
