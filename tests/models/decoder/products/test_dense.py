"""Products with weights in the format of the activations."""

import pytest
import torch

from gencli.models.decoder.products.dense import PackedProduct, PlainProduct, RowPackedProduct
from gencli.models.onednn import can_pack, has_tiles

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33)]


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) / 8).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", [PlainProduct, PackedProduct, RowPackedProduct])
def test_a_product_is_that_of_the_weights(kernel: type, shape: tuple[int, int], dtype: torch.dtype) -> None:
    if kernel is not PlainProduct and not can_pack(dtype):
        pytest.skip("this machine does not pack the format")
    weight, bias, given = matrix(shape, dtype), matrix(shape[:1], dtype), matrix((5, shape[1]), dtype)
    expected = given.double() @ weight.double().T + bias.double()
    made = kernel(weight, bias)
    torch.testing.assert_close(made(given).double(), expected, rtol=2e-2, atol=2e-2)
    assert made.nbytes == weight.nbytes


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_of_a_packed_product_does_not_see_the_others(
    shape: tuple[int, int], dtype: torch.dtype, threads: int
) -> None:
    if not can_pack(dtype):
        pytest.skip("this machine does not pack the format")
    if dtype == torch.bfloat16 and has_tiles():
        pytest.skip("the bits of AMX depend on the number of rows")
    torch.set_num_threads(threads)
    product, given = PackedProduct(matrix(shape, dtype)), matrix((16, shape[1]), dtype)
    alone = torch.cat([product(row[None]) for row in given])
    assert all(torch.equal(product(given[:rows]), alone[:rows]) for rows in range(2, 17))
