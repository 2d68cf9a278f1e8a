"""Beam searches and samples share one batch: neither waits for ever, and neither changes the other."""

from dataclasses import replace

import pytest

from gencli.core.request import Drafting, Guidance
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import NgramDrafter
from tests.engine.beams.harness import LETTERS, engine, request, search
from tests.engine.harness import ends_of
from tests.engine.harness import request as plain


def samples(count, **options):
    return [plain(f"s{number}", chain=LETTERS, **options) for number in range(count)]


def texts_of(ends):
    return {key: (end.text, end.score) for key, end in ends.items()}


def test_a_search_takes_the_prompt_that_a_neighbour_has_computed():
    prompt = "the same beginning of both prompts, "
    ends = search([plain(prompt + "a", chain=LETTERS), request(prompt + "b")])
    assert ends[prompt + "b", 0].cached_tokens == len(prompt)
    assert texts_of(ends)[prompt + "b", 0] == texts_of(search([request(prompt + "b")]))[prompt + "b", 0]


def test_a_cancelled_search_ends_and_its_neighbours_do_not_notice():
    rows = [request("gone", width=3, chain=f"{LETTERS}|min_tokens=20"), *samples(4)]
    alone = texts_of(search(rows[1:]))
    for steps in (0, 1, 4):
        on = engine(max_batch=4)
        for row in rows:
            on.submit(row)
        events = [event for _ in range(steps) for event in on.step()]
        on.cancel("gone")
        ends = ends_of(events) | ends_of(on.run())
        assert ends.pop(("gone", 0)).reason == "interrupted", steps
        assert texts_of(ends) == alone, steps


def test_a_cancelled_choice_among_samples_is_told_once():
    on = engine(max_batch=2)
    on.submit(plain("a", chain=f"{LETTERS}|min_tokens=20", best_of=5, n=2))
    events = [event for _ in range(3) for event in on.step()]
    on.cancel("a")
    ends = ends_of(events + on.step())
    assert {key: end.reason for key, end in ends.items()} == {("a", j): "interrupted" for j in range(2)}


def test_memory_that_is_full_halves_searches_and_samples():
    rows = [request("a", width=2), *samples(4), request("b", width=2)]
    small = FakeRunner(258, eos_ids=(257,), memory_lanes=5)
    on = engine(runner=small, max_batch=8)
    assert texts_of(search(rows, on=on)) == texts_of(search(rows))
    assert "8 sequences at once" in on.notices[0]


def test_options_that_a_search_lacks_are_refused():
    for option, message in (
        ({"guidance": Guidance(scale=2.0)}, "not guided"),
        ({"best_of": 3}, "draws none"),
        ({"drafting": Drafting("ngram")}, "take no drafts"),
    ):
        with pytest.raises(UsageError, match=message):
            engine().submit(replace(request(), **option))


def test_drafts_of_neighbours_and_a_grammar_of_its_own_change_no_search():
    row = request("a", width=2, chain="frequency=0.1")
    row = replace(row, chain=row.chain.with_stage("grammar", kind="regex", text="[abc]{3} (done|over)"))
    drafted = plain("abcabcabc", chain=LETTERS)
    beside = search([row, drafted], drafter=NgramDrafter())
    assert beside["abcabcabc", 0].drafted.proposed
    assert texts_of(beside) == texts_of(search([row])) | texts_of(search([drafted]))
