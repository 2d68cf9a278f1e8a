"""Suffix counts: what followed most often behind the longest known run, with bounded memory."""

import pytest

from gencli.core.request import Drafting, Request
from gencli.speculative.drafter import DEPTH, DraftAsk, SuffixCounts, SuffixDrafter, Text


def counted(text, most=10_000):
    counts, ends = SuffixCounts(most), [0]
    for token in text:
        ends = counts.grow(ends, token)
    return counts, ends


def guessed(text, num=3):
    counts, ends = counted(text)
    return [guess for guess, _ in zip(counts.guesses(ends), range(num), strict=False)]


def drafted(on, text, most=8, slot=0):
    return on.propose([DraftAsk(slot, tuple(text), most)])[0]


def test_counts_decide_and_of_equal_ones_the_latest_and_a_longer_run_is_trusted_more():
    assert guessed([1, 2, 1, 2, 1, 3, 1])[0].token == 2
    assert guessed([1, 2, 1, 3, 1])[0].token == 3
    for times, probability in ((1, 1 / 2), (3, 3 / 4)):
        guess = guessed([7, 8] * times + [9, 7])[0]
        assert guess.probability == pytest.approx(probability), times
    guess = guessed([1, 2, 3, 4, 9, 3, 5, 8, 3, 5, 7, 1, 2, 3])[0]
    assert (guess.token, guess.probability) == (4, pytest.approx(1 / (1 + 1 / 3)))


def test_the_ends_of_a_text_are_those_it_grew_to():
    text = [(i * i) % 7 for i in range(80)]
    counts, ends = counted(text)
    assert counts.ends(text) == ends
    assert len(ends) == DEPTH


def test_a_full_tree_takes_up_nothing_new():
    counts, _ = counted(range(1000), most=50)
    assert len(counts) == 50


def test_outputs_that_have_ended_help_those_that_follow():
    on = SuffixDrafter()
    on.admit(0, Request("a", (1, 2)))
    assert drafted(on, [1, 2, 5, 6, 7, 8]) == []
    on.release(0)
    on.admit(0, Request("b", (3,)))
    assert drafted(on, [3, 5, 6], most=2) == [7, 8]
    assert drafted(on, [3, 5, 6, 1]) == []  # prompts are no outputs


def test_outputs_with_a_salt_neither_help_others_nor_are_helped():
    for first, second in (("s", ""), ("", "s"), ("s", "s")):
        on = SuffixDrafter()
        on.admit(0, Request("a", (1, 2), salt=first))
        drafted(on, [1, 2, 5, 6, 7, 8])
        on.release(0)
        on.admit(0, Request("b", (3,), salt=second))
        assert drafted(on, [3, 5, 6], most=2) == [], (first, second)


def test_an_output_joins_with_what_came_after_the_last_question():
    on, output = SuffixDrafter(), [5]
    on.admit(0, Request("a", (1, 2)))
    on.propose([DraftAsk(0, Text((1, 2), output), 4)])
    output += [6, 7]
    on.release(0)
    on.admit(0, Request("b", (3,)))
    assert drafted(on, [3, 5, 6], most=1) == [7]


def test_memory_is_bounded_and_what_is_oldest_goes_first():
    on = SuffixDrafter(nodes=200)
    for batch in range(30):
        on.admit(0, Request("a", (0,)))
        drafted(on, [0, *range(100 * batch, 100 * batch + 20)])
        on.release(0)
    on.admit(0, Request("b", (0,)))
    assert drafted(on, [0, 2905, 2906], most=1) == [2907]
    assert drafted(on, [0, 2905, 2906, 5, 6]) == []


def test_no_token_below_the_least_probability_is_drafted():
    on = SuffixDrafter()
    on.admit(0, Request("a", (1,), drafting=Drafting(min_p=0.7)))
    assert drafted(on, [1, 2, 9, 1]) == []
    assert drafted(on, [1, 2, 9, 1, 2, 9, 1, 2, 9, 1]) != []
