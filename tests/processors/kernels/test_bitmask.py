"""Every way of reading bit masks gives what reading them bit by bit gives."""

import pytest
import torch

from processors.kernels.operations import apply_bitmask

SHAPES = [(1, 1), (1, 31), (3, 32), (2, 33), (4, 1000), (2, 5000)]


def case(rows, width):
    torch.manual_seed(rows * width)
    masks = torch.randint(-(2**31), 2**31 - 1, (rows, (width + 31) // 32), dtype=torch.int32)
    logits = torch.randn(rows, width)
    rule = [[bool(int(masks[r, i // 32]) >> i % 32 & 1) for i in range(width)] for r in range(rows)]
    return logits, masks, logits.masked_fill(~torch.tensor(rule), -torch.inf)


def test_what_has_no_bit_is_masked_in_place():
    for shape in SHAPES:
        logits, masks, expected = case(*shape)
        assert apply_bitmask(logits, masks) is logits, shape
        assert torch.equal(logits, expected), shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_cuda_as_on_the_cpu():
    for shape in SHAPES:
        logits, masks, expected = case(*shape)
        assert torch.equal(apply_bitmask(logits.cuda(), masks.cuda()).cpu(), expected)
