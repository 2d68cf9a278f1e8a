"""The product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company."""

from itertools import product

import torch

from tests.models.cases import case
from tests.slow.models.decoder.products.test_grouped import check_rows

# Outputs and inputs: two tiles of outputs, sums in two parts.
SHAPES = [(130, 64), (7, 544)]


# Of states and, in bits, of narrow weights; the interpreter has no bfloat16.
FORMATS = [(torch.float16, None), (torch.float16, 8), (torch.float16, 4)]


def test_a_row_has_the_same_bits_in_all_shapes() -> None:
    for shape, (dtype, bits) in product(SHAPES, FORMATS):
        with case(shape, dtype, bits):
            check_rows(shape, dtype, bits)
