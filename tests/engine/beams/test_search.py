"""Searches on the fake model: the true best text, limits, stops, grammars, neighbours."""

import math
from dataclasses import replace
from itertools import product

import pytest

from gencli.core.request import Limits, Stops
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from tests.engine.beams.harness import LETTERS, engine, request, search
from tests.engine.harness import generate
from tests.engine.harness import request as plain


def test_one_beam_is_greedy():
    for stage, text in product(("", "|repetition=1.4", "|min_tokens=5"), ("Hello", "abc")):
        one = request(text, width=1, chain=LETTERS + stage)
        greedy = plain(text, chain=LETTERS + stage, draw="greedy")
        expected = generate([greedy], runner=FakeRunner(eos_ids=(257,)))[text, 0].text
        assert search([one])[text, 0].text == expected, (stage, text)


def test_the_best_come_first_and_scores_are_sums_over_length():
    ends = search([request(width=4, n=3)])
    scores = [ends["Hello", j].score for j in range(3)]
    assert scores == sorted(scores, reverse=True)
    assert len(ends["Hello", 0].candidates) == 4
    for candidate in ends["Hello", 0].candidates:
        assert candidate.score == pytest.approx(candidate.logprob / candidate.completion_tokens)
    assert all(-math.inf < one.score <= 0 for one in search([request(penalty=2.0)])["Hello", 0].candidates)
    assert scores[0] >= search([request(width=4, early=True)])["Hello", 0].score  # the first that finish


def test_stops_lengths_and_the_context_hold_for_every_beam():
    ends = search([request(width=4, n=4, stops=Stops(strings=("a", "dd")))])
    assert "stop" in {end.reason for end in ends.values()} <= {"stop", "eos"}
    assert not any("a" in end.text or "dd" in end.text for end in ends.values())
    ends = search([request(width=4, n=4, stops=Stops(ids=(97, 98)))])
    assert not any({"a", "b"} & set(end.text) for end in ends.values())
    for stage, least, most in (("min_tokens=12", 12, 24), ("ignore_eos=true", 9, 9)):
        ends = search([request(width=4, n=4, chain=f"{LETTERS}|{stage}", max_tokens=most)])
        assert all(least <= end.completion_tokens <= most for end in ends.values()), stage
    runner = FakeRunner(258, context=12, eos_ids=(257,))
    end = search([request(width=3, chain=LETTERS + "|ignore_eos=true")], runner=runner)["Hello", 0]
    assert (end.reason, end.matched, end.completion_tokens) == ("length", "context", 7)
    end = search([request(limits=Limits(max_tokens=24, max_time=1e-9))])["Hello", 0]
    assert (end.reason, end.matched) == ("length", "max_time")


def by_regex(pattern, **options):
    """A request for a search among the texts that match."""
    one = request(**options)
    return replace(one, chain=one.chain.with_stage("grammar", kind="regex", text=pattern))


def test_every_beam_follows_the_grammar():
    ends = search([by_regex("abc|bcd|[de]{3}( a)?", width=6, n=6)])
    texts = {end.text for end in ends.values()}
    assert len(texts) == 6
    assert all(t in ("abc", "bcd") or set(t.removesuffix(" a")) <= {"d", "e"} for t in texts)
    assert all(end.document == "over" or end.reason == "eos" for end in ends.values())


def test_a_grammar_with_fewer_texts_than_beams_has_them_all():
    ends = search([by_regex("ab|cd|ace", width=8, n=4)])
    assert {ends["Hello", j].text for j in range(3)} == {"ab", "cd", "ace"}
    assert ends["Hello", 3].message == "Of 4 texts that are wanted there are only 3."


def test_where_no_beam_and_no_sample_can_go_on_the_error_names_the_stage():
    chain = "allowed=[97]|suppress=[97]"
    assert "suppress" in search([request(chain=chain)])["Hello", 0].message
    ends = search([plain("a", chain=chain, best_of=3, n=2)])
    assert ["suppress" in ends["a", j].message for j in range(2)] == [True, True]


def test_a_search_that_alone_is_too_much_for_the_memory_fails():
    runner = FakeRunner(258, eos_ids=(257,), memory_lanes=3)
    assert "memory is full" in search([request(width=4)], runner=runner)["Hello", 0].message


def test_an_interrupt_ends_all_searches_and_a_choice_without_a_result():
    on = engine()
    for text in ("a", "b"):
        on.submit(request(text, n=2))
    on.interrupt()
    assert [event.reason for event in on.run() if hasattr(event, "reason")] == ["interrupted"] * 2
    on, ends = engine(), []
    on.submit(plain("a", chain=LETTERS, max_tokens=200, best_of=3, n=2))
    on.submit(plain("b", chain=LETTERS, max_tokens=1))
    for event in on.run():
        on.interrupt()
        ends += [event] if hasattr(event, "reason") else []
    assert [end.reason for end in ends if end.request == "a"] == ["interrupted"] * 2


def test_more_beams_than_slots_and_more_texts_than_beams_are_refused():
    with pytest.raises(UsageError, match="`beams` is 9, but `max_batch` lets only 8"):
        engine().submit(request(width=9))
    with pytest.raises(UsageError, match="`n` is 5, but 4 beams"):
        engine().submit(request(width=4, n=5))
