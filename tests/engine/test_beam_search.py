"""Beam searches against all continuations and against transformers."""

import math
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch

from gencli.core.events import Finish, Timings, Token
from gencli.core.request import Drafting, Guidance, Limits, Stops
from gencli.engine.beam_search import BeamCandidate, ChildBranch, Search, log_probabilities, rank
from gencli.engine.best_of import best_reachable, chosen_events, length_score, rounded
from gencli.engine.sequence import Sequence
from gencli.errors import UsageError
from gencli.models.other_runners import FakeRunner
from gencli.speculative.drafter import NgramDrafter
from gencli.text.text_stream import StopRules, TextStream
from tests.engine.beam_cases import LETTERS, engine, request, search
from tests.engine.harness import TOKENIZER, Scripted, ends_of, events_of, generate, ids_of
from tests.engine.harness import request as plain
from tests.transfers import counted_transfers


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


def ranked(*args):
    """The continuations of each search, on the host."""
    ranking = rank(*args)
    return ranking.read(ranking.packed.tolist())


def test_a_score_divides_by_a_power_of_the_length_and_none_beats_the_bound():
    for penalty, expected in ((0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9), (-1.0, -18.0)):
        assert length_score(-6.0, 3, penalty) == pytest.approx(expected), penalty
    for penalty in (-1.0, 0.0, 0.6, 1.0, 2.0):
        bound = best_reachable(-6.0, 3, 9, penalty)
        reached = [length_score(-6.0 - lost, n, penalty) for n in range(4, 10) for lost in (0.0, 0.5)]
        assert max(reached) == pytest.approx(bound), penalty


def test_scores_have_four_digits_and_what_lies_below_decides_nothing():
    """The noise of a float32 forward, in either direction, leaves the order of two equal scores alone."""
    exact, written = (-230.1478, -0.000123456, -12345.6, 0.0, -math.inf), (-230.1, -0.0001235, -12350.0, 0.0)
    assert [*map(rounded, exact)] == [*written, -math.inf]
    for noise in (-1e-6, 1e-6):
        scored = []
        for j, part in enumerate((0.0, noise, -0.01)):
            end = Finish("r", j, f"{j}", "eos", None, None, 1, 2, Timings(0, 0, 0))
            scored.append((-1.5 + part, -3.0, end, Token("r", j, "", (j,))))
        told = [event.text for event in chosen_events("r", 3, scored) if isinstance(event, Token)]
        assert told == ["0", "1", "2"]


def test_candidates_come_in_order_and_none_is_masked():
    logprobs = torch.tensor([[-1.0, -torch.inf, -3.0], [-0.5, -4.0, -torch.inf]], dtype=torch.float64)
    (candidates,) = ranked(logprobs, [[-1.0, -2.0]], [2])
    order = ((0, 0, -2.0), (1, 0, -2.5), (0, 2, -4.0), (1, 1, -6.0))
    assert list(candidates) == [BeamCandidate(*one) for one in order]
    logits = torch.tensor([[-torch.inf, -torch.inf], [0.0, 0.0]])
    found = log_probabilities(logits).tolist()
    assert found == [[-math.inf, -math.inf], pytest.approx([math.log(0.5)] * 2)]


def test_how_many_are_transferred_at_once_changes_nothing():
    logprobs = torch.randn(4, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = [[*ranked(logprobs, [[0.0, -1.0, -2.0, -3.0]], [num])[0]] for num in (80, 1, 7, 30, 200)]
    assert all(one == found[0] for one in found)
    assert len({(one.beam, one.token) for one in found[0]}) == 80


def test_a_search_ranks_the_same_beside_others_and_names_its_own_faulty_beams():
    logprobs = torch.randn(6, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logprobs[2, 3], logprobs[5] = math.nan, -math.inf
    sums, sizes = [[-1.0, -2.0], [-3.0, -1.0, 0.0], [-5.0]], (0, 2, 5, 6)
    together = ranked(logprobs, sums, [2, 6, 4])
    for i, found in enumerate(together):
        (alone,) = ranked(logprobs[sizes[i] : sizes[i + 1]], [sums[i]], [5])
        assert (found.faulty, found.is_empty) == (alone.faulty, alone.is_empty)
        assert found.faulty or list(found) == list(alone)
    assert [found.faulty for found in together] == [(), (0,), ()]
    assert [found.is_empty for found in together] == [False, False, True]


def test_with_the_last_token_no_more_candidates_are_tried_than_texts_are_kept():
    """All of a vocabulary would be tried, as none of its tokens goes on."""
    one = request("a", max_tokens=1)
    root = Sequence(one, 0, 0, TextStream(TOKENIZER.stream(one.prompt_ids), StopRules()), 0.0, context=99)
    search, tried = Search(root, max_tokens=1, num_ends=1), []

    def extend(parent, token):
        tried.append(token)
        beam = parent.fork()
        taken, _ = beam.take([token], now=0.0)
        beam.end_cut(())
        return ChildBranch(parent.slot, beam, taken)

    assert search.advance([BeamCandidate(0, token, -token) for token in range(97, 190)], extend) == []
    assert tried == [97, 98, 99, 100]
    assert (search.is_over, len(search.finished)) == (True, 4)


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


PROMPT, OTHER = "Hello", "Hi"


def runner():
    return FakeRunner(258, eos_ids=TOKENIZER.eos_ids)


def ended(drafter=None):
    """The texts of PROMPT's samples, chosen beside another request: (logprob, tokens) of each."""
    requests = plain(PROMPT, chain=LETTERS, best_of=3, n=3), plain(OTHER, chain=LETTERS)
    events = events_of(requests, on=engine(runner=runner(), drafter=drafter))
    ends, ids = ends_of(events), ids_of(events)
    return [(ends[PROMPT, j].logprob, ids[PROMPT, j]) for j in range(3)]


def test_logprobs_of_samples_come_with_the_tokens():
    on = engine(runner=runner(), max_batch=9)
    for letter in "abc":
        on.submit(plain(letter, chain="allowed=[97,98,99]", max_tokens=20, best_of=3))
    with counted_transfers() as counts:
        list(on.run())
    assert counts == {"tolist": 20}


def test_the_logprob_of_a_sample_is_the_models_own_of_its_tokens():
    for is_drafted in (False, True):
        drafter = None
        if is_drafted:
            drafter = Scripted({tuple(TOKENIZER.encode(PROMPT)): ended()[0][1]})
        logprobs = runner().table.double().log_softmax(-1)
        for logprob, ids in ended(drafter):
            steps = pairwise([TOKENIZER.encode(PROMPT)[-1], *ids])
            assert logprob == pytest.approx(sum(logprobs[step].item() for step in steps)), is_drafted
        assert drafter is None or drafter.proposed, is_drafted
