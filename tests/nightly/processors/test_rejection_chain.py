"""Behind a whole chain, texts verified by rejection have the distribution that the chain gives them."""

import pytest

from tests.processors.rejection_grid import CHAINS, FAULTS, gap
from tests.processors.rejection_texts import PAIRS
from tests.slow.processors.test_rejection_chain import FEW, MANY, check

PARTLY_RAW = ("raw q in the ratio", "raw q in the rest")  # some chains leave hardly a difference


@pytest.mark.parametrize("name", CHAINS)
def test_texts_have_the_distribution_of_each_chain_for_each_pair_of_models(name):
    for pair in PAIRS:
        check(name, pair, MANY if name == "all" else FEW)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault not in PARTLY_RAW])
def test_a_fault_is_caught_behind_every_chain(fault):
    for name, behind in CHAINS.items():
        assert behind.least or gap(name, "near", FEW, FAULTS[fault]).is_wide, name
