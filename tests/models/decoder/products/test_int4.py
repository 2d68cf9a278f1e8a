"""Weights of four bits, and the product with them."""

import torch

from gencli.models.decoder.products.coded_weights import GROUP, Int4Product, Int4Weights
from tests.models.cases import case

SHAPES = [(96, 64), (100, 2048), (7, 32), (512, 160)]


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def quantized(weight: torch.Tensor) -> Int4Weights:
    outputs, inputs = weight.shape
    return Int4Weights.of((outputs, inputs), weight.split(3))  # a slice has any number of rows


def dense(weights: Int4Weights) -> torch.Tensor:
    steps = weights.unpacked(slice(None)).double().unflatten(1, (-1, GROUP)) - 8
    return (steps * weights.scales[..., None] + weights.zeros[..., None]).flatten(1)


def test_codes_cover_each_group() -> None:
    weight = matrix(50, 96)
    weight[3, :32], weight[4] = 0.25, 0
    made = dense(quantized(weight))
    assert torch.equal(made[3, :32], weight[3, :32].double())
    assert not made[4].any()
    assert (made - weight).norm() < 0.076 * weight.norm()  # smallest and largest alone: 0.078


def test_a_product_is_that_of_the_rounded_numbers() -> None:
    for shape in SHAPES:
        with case(shape):
            weights, bias, given = quantized(matrix(*shape)), matrix(shape[0]), matrix(5, shape[1])
            expected = given.bfloat16().double() @ dense(weights).T + bias
            made = Int4Product(weights, bias)(given)
            torch.testing.assert_close(
                made.double(), expected, rtol=0, atol=1e-2 * float(expected.abs().max())
            )


def test_weights_that_are_no_numbers_are_found() -> None:
    for wrong in [torch.nan, torch.inf, -torch.inf]:
        with case(wrong):
            weight = matrix(4, 64)
            weight[2, 40] = wrong
            assert quantized(matrix(4, 64)).is_finite
            assert not quantized(weight).is_finite
