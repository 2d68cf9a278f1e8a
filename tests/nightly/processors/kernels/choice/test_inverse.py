"""A draw by inverse CDF in two kernels is the draw of the sampler."""

from itertools import product

from tests.processors.kernels.choice.cases import KINDS, SHAPES
from tests.slow.processors.kernels.choice.test_inverse import CUTS, check


def test_the_kernels_agree_on_rows_of_any_width():
    for cut, kind, shape in product(CUTS, KINDS, SHAPES):
        check(cut, kind, shape)
