"""The kernels of norms and residual sums have the values of the decoder's own code."""

from itertools import product

import torch

from gencli.models.decoder.kernels.layer_kernels import added, added_normed, normed
from tests.interpreted import interpreted
from tests.models.cases import case
from tests.models.decoder.kernels.test_norm import CLOSE, FORMATS, MODULE, given


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


def test_a_norm():
    for dtype, weights in FORMATS:
        with case(dtype, weights):
            states, _, norm, _ = given(dtype, weights)
            found = interpreted(MODULE, "normed")(states, norm.weight, norm.eps)
            torch.testing.assert_close(found, normed(states, norm), **CLOSE[dtype])
