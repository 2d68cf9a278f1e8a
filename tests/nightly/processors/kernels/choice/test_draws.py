"""A draw by kernels is the draw of the sampler; each kernel does what it does in PyTorch."""

from itertools import product

from tests.processors.kernels.choice.cases import KINDS, SHAPES
from tests.slow.processors.kernels.choice.test_draws import check


def test_the_kernels_agree_on_rows_of_any_width():
    for kind, shape in product(KINDS, SHAPES):
        check(kind, shape)
