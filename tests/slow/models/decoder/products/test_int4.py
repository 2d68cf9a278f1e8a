"""Weights of four bits, and the product with them."""

import torch

from gencli.models.decoder.products.coded_weights import Int4Product
from tests.models.decoder.products.test_int4 import matrix, quantized


def check_rows(shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    run, given = Int4Product(quantized(matrix(*shape))), matrix(33, shape[1])
    alone = torch.cat([run(row[None]) for row in given])
    assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 34))


def test_a_row_does_not_see_the_others() -> None:
    check_rows((96, 64), 1)
    check_rows((512, 160), 2)
