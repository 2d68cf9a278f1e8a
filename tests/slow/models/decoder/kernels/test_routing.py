"""The kernels that choose experts, and add up what these return, have the values of their references."""

from itertools import product

import pytest
import torch

from gencli.models.decoder.decoder_layers import routed
from tests.interpreted import interpreted
from tests.models.cases import case
from tests.models.decoder.kernels.test_routing import FORMATS, KERNEL, SIZES, lists_of, noise


@pytest.mark.parametrize("is_normalized", [True, False])
def test_the_kernel_chooses_as_the_reference(is_normalized: bool) -> None:
    for size, dtype in product(SIZES, FORMATS):
        with case(size, dtype):
            check_choice(size, is_normalized, dtype)


def check_choice(size: tuple[int, int, int, int], is_normalized: bool, dtype: torch.dtype) -> None:
    rows, experts, used, block = size
    logits = noise(rows, experts).to(dtype)
    logits[0] = 0.5  # equals
    found = interpreted(KERNEL, "routed")(logits, used, is_normalized, block)
    expected = routed(logits, used, is_normalized, block)
    torch.testing.assert_close(found[0], expected[0])
    assert lists_of(*found[1:]) == lists_of(*expected[1:])
    assert [one.shape for one in found] == [one.shape for one in expected]
