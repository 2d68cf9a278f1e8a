"""Weights of eight bits, and products with them."""

import pytest
import torch

from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.int8 import (
    Int8PackProduct,
    Int8Weights,
    QlinearProduct,
    has_vnni,
    int8_product,
)

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33), (512, 160)]
KERNELS = [QlinearProduct, Int8PackProduct]


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def rounded(given: torch.Tensor, kernel: type[Product]) -> torch.Tensor:
    """The activations that a kernel multiplies."""
    if kernel is Int8PackProduct:
        return given.bfloat16().double()
    scales = given.abs().amax(1, True) / 127
    return ((given / scales + 0.5).floor() * scales.double()).double()


def test_codes_are_nearest_to_the_weights() -> None:
    weight = matrix(50, 70)
    weight[3] = 0
    made = Int8Weights.of(weight)
    assert made.codes.abs().max() == 127
    assert (made.rows(torch.arange(50)) - weight).abs().max(1).values.le(made.scales * 0.5001).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_product_is_that_of_the_rounded_numbers(kernel: type[Product], shape: tuple[int, int]) -> None:
    weights, bias, given = Int8Weights.of(matrix(*shape)), matrix(shape[0]), matrix(5, shape[1])
    given[2] = 0
    weight = weights.codes.double() * weights.scales[:, None]
    expected = rounded(given, kernel).nan_to_num() @ weight.T + bias
    made = kernel(weights, bias)(given)  # type: ignore[call-arg]
    tolerance = 1e-5 if kernel is QlinearProduct else 1e-2
    atol = tolerance * float(expected.abs().max())
    torch.testing.assert_close(made.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [*SHAPES, (32, 11008)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_does_not_see_the_others(kernel: type[Product], shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    product = kernel(Int8Weights.of(matrix(*shape)))  # type: ignore[call-arg]
    given = matrix(33, shape[1])
    alone = torch.cat([product(row[None]) for row in given])
    assert all(torch.equal(product(given[:rows]), alone[:rows]) for rows in range(2, 34))


def test_a_row_with_a_number_that_is_none_has_no_other_result() -> None:
    given = matrix(2, 64)
    given[1, 7] = torch.nan
    made = int8_product(Int8Weights.of(matrix(16, 64)))(given)
    assert made[0].isfinite().all()
    assert made[1].isnan().all()


def test_the_kernel_is_that_of_the_machine() -> None:
    assert int8_product(Int8Weights.of(matrix(16, 64))).kernel == ("qlinear" if has_vnni() else "int8pack")
