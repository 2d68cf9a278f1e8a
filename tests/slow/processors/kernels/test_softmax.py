"""The softmax of many rows, and the probability of one id of each."""

import math

import torch

from tests.interpreted import interpreted
from tests.processors.kernels.test_softmax import SHAPES, probability_case


def test_the_kernel_agrees():
    kernel = interpreted("processors.kernels.token_probability_triton", "token_probability_triton")
    for shape in SHAPES[:4]:
        logits, ids, at, expected = probability_case(*shape)
        assert torch.allclose(kernel(logits, ids, at), expected, rtol=1e-5, atol=0), shape
        some = logits.softmax(-1).gather(1, ids[: len(logits), None]).squeeze(1)
        assert torch.allclose(kernel(logits, ids[: len(logits)], None), some, rtol=1e-5, atol=0), shape
        logits[0, 3 % shape[1]] = math.nan
        assert kernel(logits, ids[:1], torch.tensor([0])).isnan().all(), shape
