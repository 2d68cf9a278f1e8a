"""Every way of reading bit masks gives what reading them bit by bit gives."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from processors.kernels.bitmask import apply_bitmask, apply_bitmask_torch

SHAPES = [(1, 1), (1, 31), (3, 32), (2, 33), (4, 1000), (2, 5000)]
ROOT = Path(__file__).parents[3]


def case(rows, width):
    torch.manual_seed(rows * width)
    masks = torch.randint(-(2**31), 2**31 - 1, (rows, (width + 31) // 32), dtype=torch.int32)
    logits = torch.randn(rows, width)
    rule = [[bool(int(masks[r, i // 32]) >> i % 32 & 1) for i in range(width)] for r in range(rows)]
    return logits, masks, logits.masked_fill(~torch.tensor(rule), -torch.inf)


@pytest.mark.parametrize(("rows", "width"), SHAPES)
@pytest.mark.parametrize("function", [apply_bitmask, apply_bitmask_torch], ids=lambda f: f.__name__)
def test_what_has_no_bit_is_masked_in_place(function, rows, width):
    logits, masks, expected = case(rows, width)
    assert function(logits, masks) is logits
    assert torch.equal(logits, expected)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_triton_kernel_agrees_where_it_is_interpreted():
    code = """
import torch
from processors.kernels.bitmask_triton import apply_bitmask_triton
from tests.processors.kernels.test_bitmask import SHAPES, case
for shape in SHAPES:
    logits, masks, expected = case(*shape)
    assert torch.equal(apply_bitmask_triton(logits, masks), expected), shape
"""
    run = [sys.executable, "-c", code]
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, env=told, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_cuda_as_on_the_cpu():
    for shape in SHAPES:
        logits, masks, expected = case(*shape)
        assert torch.equal(apply_bitmask(logits.cuda(), masks.cuda()).cpu(), expected)
