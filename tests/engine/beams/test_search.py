"""Searches on the fake model: the true best text, limits, stops, grammars, neighbours."""

import math
from dataclasses import replace
from itertools import product

import pytest

from gencli.core.request import Limits, Stops
from gencli.errors import UsageError
from gencli.models.fake import FakeRunner
from tests.engine.beams.harness import LETTERS, engine, request, search, texts
from tests.engine.harness import TOKENIZER, generate
from tests.engine.harness import request as plain

TOY = (97, 98, 99, 257)  # a, b, c and the end of the text
CHAIN = "allowed=[97,98,99,257]"


def every_text(table, prompt, most):
    """Sum of logprobs of every text over the toy vocabulary, by its tokens."""
    found = {}
    for length in range(1, most + 1):
        for ids in product(TOY, repeat=length):
            if 257 in ids[:-1] or (ids[-1] != 257 and length < most):
                continue
            last, total = prompt[-1], 0.0
            for token in ids:
                row = table[last].double()[list(TOY)].log_softmax(0)
                total += row[TOY.index(token)].item()
                last = token
            found[ids] = total
    return found


def test_enough_beams_find_the_best_of_all_texts():
    for penalty, seed in product((-0.5, 0.0, 0.6, 1.0, 2.0), (1, 2)):
        runner = FakeRunner(258, seed, eos_ids=TOKENIZER.eos_ids, max_lanes=120)
        prompt = TOKENIZER.encode("x")
        known = every_text(runner.table, prompt, 4)
        best = sorted((total / len(ids) ** penalty for ids, total in known.items()), reverse=True)[:5]
        one = request("x", width=120, penalty=penalty, chain=CHAIN, max_tokens=4, n=5)
        ends = search([one], runner=runner, max_batch=120)
        assert [ends["x", j].score for j in range(5)] == pytest.approx(best), (penalty, seed)


def test_one_beam_is_greedy():
    for stage in ("", "|repetition=1.4", "|frequency=0.7", "|min_tokens=5"):
        for text in ("Hello", "abc", "the cat"):
            one = request(text, width=1, chain=LETTERS + stage)
            greedy = plain(text, chain=LETTERS + stage, draw="greedy")
            assert (
                search([one])[text, 0].text
                == generate([greedy], runner=FakeRunner(eos_ids=(257,)))[text, 0].text
            ), stage


def test_neighbours_change_nothing():
    many = [
        request(text, width=width, penalty=penalty, early=early)
        for text, width, penalty, early in (
            ("Hello", 2, 1.0, False),
            ("a", 4, 0.6, True),
            ("the big cat " * 5, 3, 2.0, False),
            ("zz", 1, 1.0, False),
        )
    ]
    alone = {key: found for one in many for key, found in texts([one]).items()}
    assert texts(many) == alone
    assert texts([*many, plain("beside", chain=LETTERS)], max_batch=4) == alone | {"beside": []}


def test_chunks_of_the_prompt_change_nothing():
    one = request("a long prompt that is read in pieces")
    assert texts([one], step_tokens=7) == texts([one])


def test_the_best_come_first_and_scores_are_sums_over_length():
    ends = search([request(width=4, n=3)])
    scores = [ends["Hello", j].score for j in range(3)]
    assert scores == sorted(scores, reverse=True)
    assert len(ends["Hello", 0].candidates) == 4
    for candidate in ends["Hello", 0].candidates:
        assert candidate.score == pytest.approx(candidate.logprob / candidate.completion_tokens)


def test_early_stopping_takes_the_first_that_finish():
    early, full = (search([request(width=4, early=early)])["Hello", 0] for early in (True, False))
    assert full.score >= early.score


def test_a_stop_string_finishes_a_beam():
    ends = search([request(width=4, n=4, stops=Stops(strings=("a", "dd")))])
    assert {end.reason for end in ends.values()} <= {"stop", "eos"}
    assert "stop" in {end.reason for end in ends.values()}
    assert not any("a" in end.text or "dd" in end.text for end in ends.values())


def test_a_stop_id_finishes_a_beam():
    ends = search([request(width=4, n=4, stops=Stops(ids=(97, 98)))])
    assert not any({"a", "b"} & set(end.text) for end in ends.values())


def test_lengths_hold_for_every_beam():
    for chain, most in ((LETTERS + "|min_tokens=12", 24), (LETTERS + "|ignore_eos=true", 9)):
        ends = search([request(width=4, n=4, chain=chain, max_tokens=most)])
        least = 12 if "min" in chain else most
        assert all(least <= end.completion_tokens <= most for end in ends.values()), (chain, most)


def test_the_context_ends_every_beam():
    runner = FakeRunner(258, context=12, eos_ids=(257,))
    end = search([request(width=3, chain=LETTERS + "|ignore_eos=true")], runner=runner)["Hello", 0]
    assert (end.reason, end.matched, end.completion_tokens) == ("length", "context", 7)


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


def test_what_no_beam_can_go_on_with_is_an_error_that_names_the_stage():
    chain = "allowed=[97]|suppress=[97]"
    assert "suppress" in search([request(chain=chain)])["Hello", 0].message


def test_a_full_memory_leaves_fewer_at_once():
    requests = [request(text, width=2) for text in ("a", "b", "c")]
    small = FakeRunner(258, eos_ids=(257,), memory_lanes=3)
    on = engine(runner=small, max_batch=6)
    assert texts(requests, on=on) == texts(requests)
    assert "from now on" in on.notices[0]


def test_what_alone_is_too_much_fails():
    runner = FakeRunner(258, eos_ids=(257,), memory_lanes=3)
    assert "memory is full" in search([request(width=4)], runner=runner)["Hello", 0].message


def test_an_interrupt_ends_all_searches():
    on = engine()
    for text in ("a", "b"):
        on.submit(request(text, n=2))
    on.interrupt()
    ends = [event for event in on.run() if hasattr(event, "reason")]
    assert [end.reason for end in ends] == ["interrupted"] * 2


def test_an_interrupted_choice_among_samples_is_no_result():
    on = engine()
    on.submit(plain("a", chain=LETTERS, max_tokens=200, best_of=3, n=2))
    on.submit(plain("b", chain=LETTERS, max_tokens=1))
    ends = []
    for event in on.run():
        on.interrupt()
        ends += [event] if hasattr(event, "reason") else []
    assert [end.reason for end in ends if end.request == "a"] == ["interrupted"] * 2


def test_samples_that_fail_are_left_out_of_the_choice_unless_all_do():
    ends = search([plain("a", chain="allowed=[97]|suppress=[97]", best_of=3, n=2)])
    assert ["suppress" in ends["a", j].message for j in range(2)] == [True, True]


def test_a_limit_of_time_ends_a_search_with_what_it_has():
    limits = Limits(max_tokens=24, max_time=1e-9)
    end = search([request(limits=limits)])["Hello", 0]
    assert (end.reason, end.matched) == ("length", "max_time")


def test_more_beams_than_slots_are_refused():
    with pytest.raises(UsageError, match="`beams` is 9, but `max_batch` lets only 8"):
        engine().submit(request(width=9))


def test_more_texts_than_beams_are_refused():
    with pytest.raises(UsageError, match="`n` is 5, but 4 beams"):
        engine().submit(request(width=4, n=5))


def test_lanes_are_empty_after_the_search():
    runner = FakeRunner(258, eos_ids=(257,))
    search([request("a"), request("b", width=3)], runner=runner)
    assert [runner.length(lane) for lane in range(8)] == [0] * 8


def test_no_score_is_above_zero():
    ends = search([request(penalty=2.0)])
    assert all(-math.inf < c.score <= 0 for c in ends["Hello", 0].candidates)
