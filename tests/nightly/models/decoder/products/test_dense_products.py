"""The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler.

The product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company.
"""

from itertools import product

import pytest
import torch

from tests.models.cases import case
from tests.slow.models.decoder.products.test_dense_products import (
    check_experts,
    check_grouped_rows,
    check_instructions,
    check_narrow,
    check_rows,
    own_compiler_cache,
)

# Sums in one part and in two; outputs and inputs that fill no tile, and inputs that fill one.
SHAPES = [(7, 33), (130, 600), (3, 512)]
FORMATS = [torch.float32, torch.float16]  # the interpreter has no bfloat16


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_in_all_shapes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    check_rows(shape, dtype)


BUILDS = [*((target, "bf16") for target in (80, 89, 90, 100, 120)), (90, "float32"), (100, "float32")]


@pytest.mark.parametrize(("target", "dtype"), BUILDS)
def test_rows_are_computed_by_the_same_instructions_on_all_cards(
    target: int, dtype: str, own_compiler_cache: None
) -> None:
    check_instructions(target, dtype)
    if dtype == "bf16":
        check_narrow(target)
    if target in (80, 90, 100) and (target, dtype) != (100, "float32"):
        check_experts(target, dtype)


# Outputs and inputs: two tiles of outputs, sums in two parts.
GROUPED_SHAPES = [(130, 64), (7, 544)]
# Of states and, in bits, of narrow weights; the interpreter has no bfloat16.
GROUPED_FORMATS = [(torch.float16, None), (torch.float16, 8), (torch.float16, 4)]


def test_a_row_of_an_expert_has_the_same_bits_in_all_shapes() -> None:
    for shape, (dtype, bits) in product(GROUPED_SHAPES, GROUPED_FORMATS):
        with case(shape, dtype, bits):
            check_grouped_rows(shape, dtype, bits)
