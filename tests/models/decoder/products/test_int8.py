"""Weights of eight bits, and products with them."""

from itertools import product

import torch

from gencli.models.decoder.products.coded_weights import Int8PackProduct, Int8Weights, int8_kernels
from gencli.models.decoder.products.dense_products import Product
from tests.models.cases import case

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33), (512, 160)]


# Int8PackProduct runs everywhere; the sums of the others saturate at 16 bits where no CPU has VNNI.
KERNELS = [*dict.fromkeys((Int8PackProduct, *int8_kernels()))]


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def quantized(weight: torch.Tensor) -> Int8Weights:
    outputs, inputs = weight.shape
    return Int8Weights.of((outputs, inputs), weight.split(3))  # a slice has any number of rows


def rounded(given: torch.Tensor, kernel: type[Product]) -> torch.Tensor:
    """The activations that a kernel multiplies."""
    if kernel is Int8PackProduct:
        return given.bfloat16().double()
    scales = given.abs().amax(1, True) / 127
    return ((given / scales + 0.5).floor() * scales.double()).double()


def test_codes_are_nearest_to_the_weights() -> None:
    weight = matrix(50, 70)
    weight[3] = 0
    made = quantized(weight)
    assert made.codes.abs().max() == 127
    assert (made.rows(torch.arange(50)) - weight).abs().max(1).values.le(made.scales * 0.5001).all()


def test_a_product_is_that_of_the_rounded_numbers() -> None:
    for shape, kernel in product(SHAPES, KERNELS):
        with case(shape, kernel):
            weights, bias, given = quantized(matrix(*shape)), matrix(shape[0]), matrix(5, shape[1])
            given[2] = 0
            weight = weights.codes.double() * weights.scales[:, None]
            expected = rounded(given, kernel).nan_to_num() @ weight.T + bias
            made = kernel(weights, bias)(given)  # type: ignore[call-arg]
            tolerance = 1e-2 if kernel is Int8PackProduct else 1e-5
            atol = tolerance * float(expected.abs().max())
            torch.testing.assert_close(made.double(), expected, rtol=0, atol=atol)


def test_a_row_with_a_number_that_is_none_has_no_other_result() -> None:
    for kernel in int8_kernels():
        with case(kernel):
            given = matrix(2, 64)
            given[1, 7] = torch.nan
            made = kernel(quantized(matrix(16, 64)))(given)  # type: ignore[arg-type]
            assert made[0].isfinite().all()
            assert made[1].isnan().all()
