"""Behind a whole chain, texts verified by rejection have the distribution that the chain gives them."""

import math

import pytest
import torch

from tests.processors.rejection_grid import CHAINS, FAULTS, FAULTS_OF_DROPPING, RISK, Gap, gap, texts
from tests.processors.rejection_texts import LENGTH, PAIRS

DRAWS = {"all": 34_000}  # more than 200,000 over all pairs of models
FEW = 6_000
PARTLY_RAW = ("raw q in the ratio", "raw q in the rest")  # some chains leave hardly a difference


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("pair", PAIRS)
def test_texts_have_the_distribution_of_the_chain(name, pair):
    found = gap(name, pair, DRAWS.get(name, FEW))
    assert found.chi_square < found.bound
    assert found.freedom >= 4


@pytest.mark.parametrize("name", [name for name, behind in CHAINS.items() if not behind.least])
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in PARTLY_RAW])
def test_a_fault_is_caught_behind_every_chain(name, fault):
    assert gap(name, "near", FEW, FAULTS[fault]).is_wide


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_behind_all_stages_where_models_are_opposed(fault):
    assert gap("all", "opposed", FEW, FAULTS[fault]).is_wide


@pytest.mark.parametrize("fault", FAULTS_OF_DROPPING)
def test_a_fault_of_dropping_drafts_is_caught_where_they_are_dropped(fault):
    way = FAULTS_OF_DROPPING[fault]
    assert gap("all, drafts dropped", "near", FEW, way).is_wide
    assert not gap("all", "near", FEW, way).is_wide


@pytest.mark.parametrize("name", CHAINS)
def test_the_texts_are_all_that_can_come(name):
    known = texts(name, "near")
    whole = known.chances[known.places == LENGTH]
    assert math.isclose(float(whole.sum()), 1, rel_tol=1e-6)


@pytest.mark.parametrize("freedom", [4, 10, 60])
def test_right_counts_are_beyond_the_bound_about_once_in_a_million(freedom):
    half = Gap(0, 0.0, freedom).bound / 2
    beyond = math.exp(-half) * sum(half**k / math.factorial(k) for k in range(freedom // 2))
    assert RISK / 3 < beyond < RISK


def test_counts_are_compared_with_what_is_due():
    chances = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    assert not Gap.of(torch.tensor([500.0, 310, 145, 45, 0]), chances).is_wide
    assert Gap.of(torch.tensor([400.0, 400, 150, 50, 0]), chances).is_wide
    assert Gap.of(torch.tensor([500.0, 300, 150, 49, 1]), chances).chi_square == math.inf
