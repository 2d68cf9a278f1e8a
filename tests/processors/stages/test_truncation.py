"""Top-k, top-p and min-p, entries 5 to 11."""

import math

import pytest
import torch

from processors.base import Env
from processors.errors import ParamError
from processors.registry import builtin_registry
from processors.testing import Subject
from processors.testing.checks import TEXTS, Bench

INF = math.inf
TIED = [1.0, 3.0, 2.0, 3.0, 2.0, 2.0]
HALVES = [2 * math.log(2), math.log(2), 0.0, 0.0]  # probabilities .5 .25 .125 .125


def test_top_k_keeps_exactly_k_and_the_lowest_ids_of_a_tie(kept):
    for k, ids in [(1, [1]), (2, [1, 3]), (3, [1, 2, 3]), (5, [1, 2, 3, 4, 5])]:
        assert kept("top_k", {"k": k}, TIED) == ids, k


def test_top_k_keeps_all_ties_if_asked(kept):
    assert kept("top_k", {"k": 3, "ties": "keep"}, TIED) == [1, 2, 3, 4, 5]


def test_k_from_the_number_of_candidates_on_changes_nothing(run):
    for k in [6, 7, 2**31 - 1]:
        assert run("top_k", {"k": k}, TIED) == TIED, k


def test_k_below_minus_one_is_refused(run):
    with pytest.raises(ParamError, match="-2"):
        run("top_k", {"k": -2}, TIED)


def test_top_p_keeps_the_token_that_crosses(kept):
    assert kept("top_p", {"p": 0.7}, HALVES) == [0, 1]
    assert kept("top_p", {"p": 0.76}, HALVES) == [0, 1, 2]


def test_exclusive_top_p_drops_the_token_that_crosses(kept):
    assert kept("top_p", {"p": 0.7, "boundary": "exclusive"}, HALVES) == [0]
    assert kept("top_p", {"p": 0.76, "boundary": "exclusive"}, HALVES) == [0, 1]


def test_reaching_p_exactly_ends_the_set(kept):
    for boundary in ["inclusive", "exclusive"]:
        assert kept("top_p", {"p": 0.75, "boundary": boundary}, [0.0] * 4) == [0, 1, 2], boundary


def test_p_zero_keeps_one_token(kept):
    for boundary in ["inclusive", "exclusive"]:
        assert kept("top_p", {"p": 0, "boundary": boundary}, TIED) == [1], boundary


def test_top_p_sees_what_earlier_masks_left(kept):
    # R4: renormalised, the two left have probabilities 2/3 and 1/3.
    assert kept("top_p", {"p": 0.6}, [-INF, math.log(2), 0.0, -INF]) == [1]


def test_top_p_finds_a_far_tail_among_many_ids(kept):
    # Half of the mass in one token, half in 200,000 equal ones: float32 sums would lose count.
    logits = [math.log(200_000), *[0.0] * 200_000]
    assert len(kept("top_p", {"p": 0.75}, logits)) == pytest.approx(100_001, abs=1)


def test_min_p_keeps_what_reaches_the_share_of_the_best(kept):
    assert kept("min_p", {"p": 0.4}, HALVES) == [0, 1]
    assert kept("min_p", {"p": 0.2}, HALVES) == [0, 1, 2, 3]


def test_min_p_one_keeps_exactly_the_ties_with_the_best(kept):
    assert kept("min_p", {"p": 1}, TIED) == [1, 3]


def test_min_p_compares_exactly(kept):
    for p in [share / 97 for share in range(1, 97)]:
        level = torch.tensor(math.log(p)).item()  # float32, so a little above ln p or below it
        assert kept("min_p", {"p": p}, [0.0, level]) == ([0, 1] if level >= math.log(p) else [0]), p


def test_keep_does_not_cut_what_min_p_keeps(kept):
    assert kept("min_p", {"p": 1, "keep": 2}, [3.0, 3.0, 1.0, 3.0]) == [0, 1, 3]


def test_keep_holds_on_to_the_best_tokens(kept):
    for stage, params in [("top_k", {"k": 1}), ("top_p", {"p": 0.1}), ("min_p", {"p": 1.0})]:
        assert kept(stage, {**params, "keep": 4}, TIED) == [1, 2, 3, 4], stage


def test_top_p_on_a_wide_vocabulary_equals_a_full_sort():
    for boundary in ["inclusive", "exclusive"]:
        for scale in [0.0, 0.01, 1.0, 8.0]:
            width, stage = 30_000, builtin_registry().load("top_p")
            params = tuple(stage.Params(p, boundary) for p in (0.01, 0.5, 0.9, 0.99999))
            bench = Bench(Subject(stage, params, Env(width)))
            for slot, values in enumerate(params):
                bench.admit(slot, values, TEXTS[3])
            logits = scale * torch.randn(4, width, generator=torch.Generator().manual_seed(1))
            out = bench.apply(logits, range(4))
            for i, values in enumerate(params):
                ranked, ids = logits[i].double().sort(stable=True, descending=True)
                weights = (ranked - ranked[0]).exp()
                mass, bound = weights.cumsum(0), values.p * weights.sum()
                stays = mass - weights < bound * (1 - 1e-12) if boundary == "inclusive" else mass <= bound
                stays[0] = True  # R3
                expected = ids[stays].sort().values
                assert torch.equal((out[i] > -INF).nonzero().squeeze(1), expected), (boundary, scale)
