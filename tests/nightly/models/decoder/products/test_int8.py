"""Weights of eight bits, and products with them."""

from itertools import product

from tests.models.cases import case
from tests.models.decoder.products.test_int8 import SHAPES
from tests.slow.models.decoder.products.test_int8 import ALL_KERNELS, check_rows


def test_a_row_of_any_shape_does_not_see_the_others() -> None:
    for kernel, shape, threads in product(ALL_KERNELS, [*SHAPES, (32, 11008)], (1, 2)):
        with case(kernel, shape, threads):
            check_rows(kernel, shape, threads)
