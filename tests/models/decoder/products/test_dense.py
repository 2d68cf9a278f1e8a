"""Products with weights in the format of the activations."""

from itertools import product

import torch

from gencli.models.decoder.products.dense_products import (
    PackedProduct,
    PlainProduct,
    RowPackedProduct,
    can_pack,
)
from tests.models.cases import case

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33)]


FORMATS = (torch.float32, torch.bfloat16)


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) / 8).to(dtype)


def test_a_product_is_that_of_the_weights() -> None:
    for kernel, shape, dtype in product((PlainProduct, PackedProduct, RowPackedProduct), SHAPES, FORMATS):
        if kernel is PlainProduct or can_pack(dtype):
            weight, bias, given = matrix(shape, dtype), matrix(shape[:1], dtype), matrix((5, shape[1]), dtype)
            expected = given.double() @ weight.double().T + bias.double()
            made = kernel(weight, bias)
            with case(kernel, shape, dtype):
                torch.testing.assert_close(made(given).double(), expected, rtol=2e-2, atol=2e-2)
                assert made.nbytes == weight.nbytes
