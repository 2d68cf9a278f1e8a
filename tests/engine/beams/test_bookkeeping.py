"""The parts of a search that need no model: scores, candidates, the finished list, slots."""

import math

import pytest
import torch

from gencli.core.events import Finish, Timings, Token
from gencli.engine.beam_search import (
    BeamCandidate,
    ChildBranch,
    FinishedList,
    Search,
    assign_slots,
    log_probabilities,
    rank,
)
from gencli.engine.best_of import best_reachable, chosen_events, length_score, rounded
from gencli.engine.sequence import Sequence
from gencli.text.text_stream import StopRules, TextStream
from tests.engine.beams.harness import request
from tests.engine.harness import TOKENIZER


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


def test_the_finished_list_keeps_the_best_and_of_equals_the_first():
    found = FinishedList[str](2)
    assert (found.is_full, found.worst) == (False, -math.inf)
    for score, text in ((-3.0, "a"), (-1.0, "b"), (-1.0, "c"), (-9.0, "d")):
        found.add(score, text)
    assert found.entries == ((-1.0, "b"), (-1.0, "c"))
    assert (found.is_full, found.worst) == (True, -1.0)


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


def test_children_take_their_parents_slot_or_one_that_is_free():
    cases = {(4, 5, 6): [4, 5, 6], (6, 5, 4): [6, 5, 4], (5, 5, 5): [5, 4, 6], (6, 4, 6): [6, 4, 5]}
    for parents, placed in (cases | {(4,): [4], (): []}).items():
        assert assign_slots([*parents], (4, 5, 6)) == placed, parents


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
    assert (search.is_over, len(search.finished.entries)) == (True, 4)
