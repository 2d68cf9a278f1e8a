"""The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler."""

from collections.abc import Callable

import pytest
import torch

from gencli.models.decoder.products.dense_products import (
    MAX_SPLIT_ROWS,
    ROWS,
    FixedProduct,
    num_parts,
    num_tiles,
)
from tests.interpreted import interpreted
from tests.models.cases import case

LAUNCH = "gencli.models.decoder.products.fixed_launch"


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def kernel(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product by the interpreted kernel; its counters are zero again behind each call."""
    launch = interpreted(LAUNCH, "fixed_product_triton")
    arrived = torch.zeros(MAX_SPLIT_ROWS // ROWS * num_tiles(len(weight)), dtype=torch.int32)

    def run(given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = launch(given, weight, None, None, bias, arrived)
        assert not arrived.any()
        return made

    return run


def test_without_a_bias_and_without_rows() -> None:
    weight = matrix((5, 40), torch.float32)
    product = kernel(weight, None)
    torch.testing.assert_close(product(torch.eye(40)), weight.T)
    assert product(torch.empty(0, 40)).shape == (0, 5)


def test_an_absent_row_changes_no_row_even_beside_infinity() -> None:
    for kind in ["kernel", "twin"]:
        with case(kind):
            weight, given = matrix((4, 40), torch.float32), matrix((3, 40), torch.float32)
            given[1] = torch.inf
            run = kernel(weight, None) if kind == "kernel" else FixedProduct(weight)
            made = run(given)
            assert torch.equal(made[[0, 2]].isfinite(), torch.ones(2, 4, dtype=torch.bool))
            assert not made[1].isfinite().any()


def test_few_outputs_are_added_up_in_parts() -> None:
    sizes = {
        (128256, 2048): 1,
        (16384, 2048): 1,
        (2048, 8192): 8,
        (4096, 4096): 4,
        (896, 896): 3,
        (64, 64): 1,
    }
    assert {size: num_parts(*size) for size in sizes} == sizes
    narrow = {(128256, 2048): 1, (16384, 2048): 2, (3072, 2048): 4, (4096, 4096): 4, (896, 896): 3}
    assert {size: num_parts(*size, bits=4) for size in narrow} == narrow


def test_a_kernel_does_not_know_the_number_of_rows() -> None:
    pytest.importorskip("triton")
    from gencli.models.decoder.products import fixed_triton

    assert all(
        one.do_not_specialize == ["num_rows", "list_size"] for one in (fixed_triton._few, fixed_triton._many)
    )
