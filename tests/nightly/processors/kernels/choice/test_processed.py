"""The logits that a kernel writes are those behind the stages, bit for bit."""

from itertools import product

from tests.processors.kernels.choice.cases import KINDS, SHAPES
from tests.slow.processors.kernels.choice.test_processed import CUTS, check


def test_the_kernel_agrees_on_rows_of_any_width():
    for cut, kind, shape in product(CUTS, KINDS, (*SHAPES, (4, 4097))):
        check(cut, kind, shape)
