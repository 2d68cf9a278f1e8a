"""The kernels of norms and residual sums have the values of the decoder's own code."""

import torch

from gencli.models.decoder.kernels.layer_kernels import Norm
from tests.interpreted import interpreted

MODULE = "gencli.models.decoder.kernels.norm_triton"


FLOAT, HALF = torch.float32, torch.float16


# Triton's interpreter cuts bfloat16 off in place of rounding it, so that these are the formats to compare.
FORMATS = [(FLOAT, FLOAT), (HALF, HALF), (HALF, FLOAT)]


CLOSE = {FLOAT: {"rtol": 1e-6, "atol": 1e-6}, HALF: {"rtol": 0.0, "atol": 0.0}}


def given(dtype, weights, width=100):
    noise = torch.Generator().manual_seed(1)
    states, more = (torch.randn(3, width, generator=noise).to(dtype) for _ in range(2))
    return states, more, *(Norm(torch.randn(width, generator=noise).to(weights), eps) for eps in (1e-5, 1e-6))


def test_a_row_has_the_same_bits_alone():
    states, _, norm, _ = given(FLOAT, FLOAT)
    kernel = interpreted(MODULE, "normed")
    assert torch.equal(kernel(states, norm.weight, norm.eps)[1:2], kernel(states[1:2], norm.weight, norm.eps))
