"""Weights of eight bits, and products with them."""

from itertools import product

import torch

from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.int8 import QlinearProduct
from tests.models.cases import case
from tests.models.decoder.products.test_int8 import KERNELS, matrix, quantized

ALL_KERNELS = [*dict.fromkeys((*KERNELS, QlinearProduct))]


def check_rows(kernel: type[Product], shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    run = kernel(quantized(matrix(*shape)))  # type: ignore[call-arg]
    given = matrix(33, shape[1])
    alone = torch.cat([run(row[None]) for row in given])
    assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 34))


def test_a_row_does_not_see_the_others() -> None:
    for kernel, (shape, threads) in product(ALL_KERNELS, [((100, 2048), 1), ((7, 33), 2)]):
        with case(kernel, shape, threads):
            check_rows(kernel, shape, threads)
