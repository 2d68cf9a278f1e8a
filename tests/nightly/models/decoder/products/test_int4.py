"""Weights of four bits, and the product with them."""

from itertools import product

from tests.models.cases import case
from tests.models.decoder.products.test_int4 import SHAPES
from tests.slow.models.decoder.products.test_int4 import check_rows


def test_a_row_of_any_shape_does_not_see_the_others() -> None:
    for shape, threads in product([*SHAPES, (32, 11008)], (1, 2)):
        with case(shape, threads):
            check_rows(shape, threads)
