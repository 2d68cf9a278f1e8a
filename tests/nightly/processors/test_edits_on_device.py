"""On CUDA masks and penalties are one kernel; the logits are those of the stages, bit for bit."""

import pytest

from tests.processors.random_chains import KINDS
from tests.slow.processors.test_edits_on_device import compare_random


@pytest.mark.parametrize("kind", KINDS)
def test_many_random_chains_over_all_kinds_of_logits(kind):
    compare_random(kind, 50)
