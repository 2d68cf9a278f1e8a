"""The softmax of many rows, and the probability of one id of each."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from processors.kernels import blocks
from processors.kernels.softmax import softmax_parts, token_probability

INF = math.inf
ROOT = Path(__file__).parents[3]
SHAPES = [(1, 1), (3, 7), (5, 4096), (2, 9000), (70, 40_000)]


def probability_case(rows, width):
    """Logits, the ids, the rows that these are of, and their probabilities: 1 without a row."""
    logits = 4 * torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
    logits[:, 1::3] = -INF
    at = torch.arange(-1, rows).roll(rows // 2)
    ids = torch.arange(rows + 1) % width
    expected = logits.softmax(-1)[at, ids].where(at >= 0, 1)
    return logits, ids, at, expected


@pytest.mark.parametrize("shape", SHAPES)
def test_the_probability_of_an_id_is_that_of_the_softmax_and_1_without_a_row(shape):
    logits, ids, at, expected = probability_case(*shape)
    assert torch.allclose(token_probability(logits, ids, at), expected, rtol=1e-5, atol=0)
    found = token_probability(logits, ids[at >= 0], None)
    assert torch.equal(found, logits.softmax(-1).gather(1, ids[at >= 0, None]).squeeze(1))


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_triton_kernel_agrees_where_it_is_interpreted():
    code = """
import torch
from processors.kernels.token_probability_triton import token_probability_triton
from tests.processors.kernels.test_softmax import SHAPES, probability_case
for shape in SHAPES[:4]:
    logits, ids, at, expected = probability_case(*shape)
    assert torch.allclose(token_probability_triton(logits, ids, at), expected, rtol=1e-5, atol=0), shape
logits[0, 3] = float("nan")
assert token_probability_triton(logits, ids[:2]).isnan().tolist() == [True, False]
"""
    told = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=told, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_are_bit_for_bit_the_rows_of_the_whole(threads, monkeypatch):
    logits = torch.randn(9, 1000, generator=torch.Generator().manual_seed(1))
    whole, at = logits.softmax(-1), torch.tensor([8, 0, 3, 3, 5])
    monkeypatch.setattr(blocks, "CACHED", 2000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for rows, expected in ((None, whole), (at, whole[at])):
        found = [(part, softmax.clone()) for part, softmax in softmax_parts(logits, rows)]
        assert len(found) > 1
        assert all(torch.equal(softmax, expected[part]) for part, softmax in found)
        assert torch.equal(torch.cat([softmax for _, softmax in found]), expected)
