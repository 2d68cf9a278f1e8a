"""Behind a whole chain, texts verified by rejection have the distribution that the chain gives them."""

import math

from tests.processors.rejection_grid import CHAINS, FAULTS, FAULTS_OF_DROPPING, gap, texts
from tests.processors.rejection_texts import LENGTH

FEW, MANY = 6_000, 34_000  # the second is more than 200,000 over all pairs of models


def test_texts_have_the_distribution_of_the_chain():
    """Behind all stages: models that are near, and those whose drafts fall; and behind dropped drafts."""
    for name, pair in (("all", "opposed"), ("all, drafts dropped", "near"), ("grammar", "target narrower")):
        check(name, pair, FEW)


def check(name, pair, draws):
    found = gap(name, pair, draws)
    assert found.chi_square < found.bound, (name, pair)
    assert found.freedom >= 4, (name, pair)


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
