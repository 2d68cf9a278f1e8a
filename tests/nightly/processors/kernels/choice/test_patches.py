"""Patches give the logits behind masks, biases and penalties; kernels and PyTorch agree bit for bit."""

from itertools import product

import pytest

from tests.processors.kernels.choice.test_patches import CASES
from tests.slow.processors.kernels.choice.test_patches import check


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_agree_on_rows_of_any_kind(name):
    for kind, width in product(("normal", "whole numbers", "masked", "huge"), (31, 700)):
        check(name, kind, width)
