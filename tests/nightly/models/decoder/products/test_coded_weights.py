"""Weights of eight bits, and products with them. Weights of four bits, and the product with them."""

from itertools import product

from tests.models.cases import case
from tests.models.decoder.products.test_coded_weights import INT4_SHAPES, SHAPES
from tests.slow.models.decoder.products.test_coded_weights import ALL_KERNELS, check_int4_rows, check_rows


def test_a_row_of_any_shape_does_not_see_the_others() -> None:
    for kernel, shape, threads in product(ALL_KERNELS, [*SHAPES, (32, 11008)], (1, 2)):
        with case(kernel, shape, threads):
            check_rows(kernel, shape, threads)


def test_a_row_of_any_shape_times_four_bits_does_not_see_the_others() -> None:
    for shape, threads in product([*INT4_SHAPES, (32, 11008)], (1, 2)):
        with case(shape, threads):
            check_int4_rows(shape, threads)
