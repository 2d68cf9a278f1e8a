"""The parts of a search that need no model: scores, candidates, the finished list, slots."""

import math

import pytest
import torch

from gencli.core.events import Finish, Timings, Token
from gencli.engine.beams.candidates import Candidate, log_probabilities, rank
from gencli.engine.beams.results import best_reachable, chosen_events, length_score, rounded
from gencli.engine.beams.search import FinishedList, Search
from gencli.engine.branches import Child, assign_slots
from gencli.engine.sequence import Sequence
from gencli.text.stream import StopRules, TextStream
from tests.engine.beams.harness import request
from tests.engine.harness import TOKENIZER


def ranked(*args):
    """The continuations of each search, on the host."""
    ranking = rank(*args)
    return ranking.read(ranking.packed.tolist())


def test_a_score_divides_by_a_power_of_the_length():
    for penalty, expected in ((0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9), (-1.0, -18.0)):
        assert length_score(-6.0, 3, penalty) == pytest.approx(expected), (penalty, expected)


def test_no_continuation_beats_the_bound_and_one_reaches_it():
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


def test_four_significant_digits_are_written():
    for value, written in (
        (-230.1478, -230.1),
        (-0.000123456, -0.0001235),
        (-12345.6, -12350.0),
        (0.0, 0.0),
        (-math.inf, -math.inf),
    ):
        assert rounded(value) == written, (value, written)


def test_what_lies_below_four_digits_decides_nothing():
    """The noise of a float32 forward, in either direction, leaves the order of two equal scores alone."""
    for noise in (-1e-6, 1e-6):
        scored = [
            (
                -1.5 + part,
                -3.0,
                Finish("r", j, f"{j}", "eos", None, None, 1, 2, Timings(0, 0, 0)),
                Token("r", j, "", (j,)),
            )
            for j, part in enumerate((0.0, noise, -0.01))
        ]
        told = [event.text for event in chosen_events("r", 3, scored) if isinstance(event, Token)]
        assert told == ["0", "1", "2"]


def test_candidates_come_in_order_and_none_is_masked():
    logprobs = torch.tensor([[-1.0, -torch.inf, -3.0], [-0.5, -4.0, -torch.inf]], dtype=torch.float64)
    (candidates,) = ranked(logprobs, [[-1.0, -2.0]], [2])
    found = list(candidates)
    assert found == [
        Candidate(0, 0, -2.0),
        Candidate(1, 0, -2.5),
        Candidate(0, 2, -4.0),
        Candidate(1, 1, -6.0),
    ]


def test_how_many_are_transferred_at_once_changes_nothing():
    for num_top in (1, 7, 30, 200):
        logprobs = torch.randn(4, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        few, all_of_them = (
            ranked(logprobs, [[0.0, -1.0, -2.0, -3.0]], [count])[0] for count in (num_top, 80)
        )
        found = list(few)
        assert found == list(all_of_them), num_top
        assert len({(one.beam, one.token) for one in found}) == 80, num_top


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


def test_a_row_where_nothing_is_allowed_has_no_candidate():
    logits = torch.tensor([[-torch.inf, -torch.inf], [0.0, 0.0]])
    found = log_probabilities(logits)
    assert found[0].tolist() == [-math.inf, -math.inf]
    assert found[1].tolist() == pytest.approx([math.log(0.5)] * 2)


def test_children_take_their_parents_slot_or_one_that_is_free():
    for parents, placed in (
        ([4, 5, 6], [4, 5, 6]),
        ([6, 5, 4], [6, 5, 4]),
        ([5, 5, 5], [5, 4, 6]),
        ([6, 4, 6], [6, 4, 5]),
        ([4], [4]),
        ([], []),
    ):
        assert assign_slots(parents, (4, 5, 6)) == placed, (parents, placed)


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
        return Child(parent.slot, beam, taken)

    assert search.advance([Candidate(0, token, -token) for token in range(97, 190)], extend) == []
    assert tried == [97, 98, 99, 100]
    assert (search.is_over, len(search.finished.entries)) == (True, 4)
