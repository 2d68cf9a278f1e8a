"""The kernels of norms and residual sums have the values of the decoder's own code."""

from itertools import product

import torch

from gencli.models.decoder.kernels.norm import added, added_normed, normed
from gencli.models.decoder.norms import Norm
from tests.interpreted import interpreted
from tests.models.cases import case

MODULE = "gencli.models.decoder.kernels.norm_triton"
FLOAT, HALF = torch.float32, torch.float16
# Triton's interpreter cuts bfloat16 off in place of rounding it, so that these are the formats to compare.
FORMATS = [(FLOAT, FLOAT), (HALF, HALF), (HALF, FLOAT)]
CLOSE = {FLOAT: {"rtol": 1e-6, "atol": 1e-6}, HALF: {"rtol": 0.0, "atol": 0.0}}


def given(dtype, weights, width=100):
    noise = torch.Generator().manual_seed(1)
    states, more = (torch.randn(3, width, generator=noise).to(dtype) for _ in range(2))
    return states, more, *(Norm(torch.randn(width, generator=noise).to(weights), eps) for eps in (1e-5, 1e-6))


def test_a_norm():
    for dtype, weights in FORMATS:
        with case(dtype, weights):
            states, _, norm, _ = given(dtype, weights)
            found = interpreted(MODULE, "normed")(states, norm.weight, norm.eps)
            torch.testing.assert_close(found, normed(states, norm), **CLOSE[dtype])


def test_a_sum_and_its_norm():
    for scale, has_post, (dtype, weights) in product([1.0, 0.22], [False, True], FORMATS):
        with case(scale, has_post, dtype, weights):
            states, more, norm, post = given(dtype, weights)
            post = post if has_post else None
            parts = (post.weight, post.eps) if post else (None, 0.0)
            found = interpreted(MODULE, "added_normed")(states, more, *parts, scale, norm.weight, norm.eps)
            expected = added_normed(states, more, post, scale, norm)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, **CLOSE[dtype])
            total = interpreted(MODULE, "added")(states, more, *parts, scale)
            torch.testing.assert_close(total, added(states, more, post, scale), **CLOSE[dtype])


def test_a_row_has_the_same_bits_alone():
    states, _, norm, _ = given(FLOAT, FLOAT)
    kernel = interpreted(MODULE, "normed")
    assert torch.equal(kernel(states, norm.weight, norm.eps)[1:2], kernel(states[1:2], norm.weight, norm.eps))
