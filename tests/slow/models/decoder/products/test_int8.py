"""Weights of eight bits, and products with them."""

from itertools import product

import torch

from gencli.models.decoder.products.coded_weights import QlinearProduct, int8_kernels
from gencli.models.decoder.products.dense_products import Product
from tests.models.cases import case
from tests.models.decoder.products.test_int8 import KERNELS, SHAPES, matrix, quantized

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


def test_all_kernels_of_this_machine_have_the_same_bits() -> None:
    for rows, shape in product([1, 2, 9, 300], [*SHAPES, (32, 11008)]):
        with case(rows, shape):
            weights, bias, given = quantized(matrix(*shape)), matrix(shape[0]), matrix(rows, shape[1])
            given[-1] = (torch.arange(shape[1]) % 255 - 127) / 2 + 2**-20  # many halves
            first, *others = [kernel(weights, bias)(given) for kernel in int8_kernels()]  # type: ignore[arg-type]
            assert all(torch.equal(first, other) for other in others)
