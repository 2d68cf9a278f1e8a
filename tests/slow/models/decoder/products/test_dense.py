"""Products with weights in the format of the activations."""

from itertools import product

import pytest
import torch

from gencli.models.decoder.products.dense_products import PackedProduct, can_pack, has_tiles
from tests.models.decoder.products.test_dense import FORMATS, SHAPES, matrix


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_row_of_a_packed_product_does_not_see_the_others(dtype: torch.dtype) -> None:
    if not can_pack(dtype):
        pytest.skip("this machine does not pack the format")
    if dtype == torch.bfloat16 and has_tiles():
        pytest.skip("the bits of AMX depend on the number of rows")
    for shape, threads in product(SHAPES, (1, 2)):
        torch.set_num_threads(threads)
        run, given = PackedProduct(matrix(shape, dtype)), matrix((16, shape[1]), dtype)
        alone = torch.cat([run(row[None]) for row in given])
        assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 17)), (shape, threads)
