"""Behind a whole chain, texts verified by rejection have the distribution that the chain gives them."""

import math

import pytest
import torch

from tests.processors.rejection_grid import CHAINS, FAULTS, FAULTS_OF_DROPPING, RISK, Gap, gap, texts
from tests.processors.rejection_texts import LENGTH, PAIRS

FEW, MANY = 6_000, 34_000  # the second is more than 200,000 over all pairs of models
PARTLY_RAW = ("raw q in the ratio", "raw q in the rest")  # some chains leave hardly a difference


def test_texts_have_the_distribution_of_the_chain():
    """Behind all stages: models that are near, and those whose drafts fall; and behind dropped drafts."""
    for name, pair in (("all", "opposed"), ("all, drafts dropped", "near"), ("grammar", "target narrower")):
        check(name, pair, FEW)


@pytest.mark.parametrize("name", CHAINS)
def test_texts_have_the_distribution_of_each_chain_for_each_pair_of_models(name):
    for pair in PAIRS:
        check(name, pair, MANY if name == "all" else FEW)


def check(name, pair, draws):
    found = gap(name, pair, draws)
    assert found.chi_square < found.bound, (name, pair)
    assert found.freedom >= 4, (name, pair)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in PARTLY_RAW])
def test_a_fault_is_caught_behind_every_chain(fault):
    for name, behind in CHAINS.items():
        assert behind.least or gap(name, "near", FEW, FAULTS[fault]).is_wide, name


def test_a_fault_is_caught_behind_all_stages_where_models_are_opposed():
    for fault, way in FAULTS.items():
        assert gap("all", "opposed", FEW, way).is_wide, fault


def test_a_fault_of_dropping_drafts_is_caught_where_they_are_dropped():
    for fault, way in FAULTS_OF_DROPPING.items():
        assert gap("all, drafts dropped", "near", FEW, way).is_wide, fault
        assert not gap("all", "near", FEW, way).is_wide, fault


def test_the_texts_are_all_that_can_come():
    for name in CHAINS:
        known = texts(name, "near")
        whole = known.chances[known.places == LENGTH]
        assert math.isclose(float(whole.sum()), 1, rel_tol=1e-6), name


def test_right_counts_are_beyond_the_bound_about_once_in_a_million():
    for freedom in (4, 10, 60):
        half = Gap(0, 0.0, freedom).bound / 2
        beyond = math.exp(-half) * sum(half**k / math.factorial(k) for k in range(freedom // 2))
        assert RISK / 3 < beyond < RISK, freedom


def test_counts_are_compared_with_what_is_due():
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    assert not Gap.of(torch.tensor([500.0, 310, 145, 45, 0]), chances).is_wide
    assert Gap.of(torch.tensor([400.0, 400, 150, 50, 0]), chances).is_wide
    assert Gap.of(torch.tensor([500.0, 300, 150, 49, 1]), chances).chi_square == math.inf
