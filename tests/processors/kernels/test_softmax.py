"""The softmax of many rows, and the probability of one id of each."""

import math
from functools import partial

import torch

from processors.kernels import operations as blocks
from processors.kernels.operations import softmax_parts, token_probability

INF = math.inf


SHAPES = [(1, 1), (3, 7), (5, 4096), (2, 9000), (70, 40_000)]


def probability_case(rows, width):
    """Logits, the ids, the rows that these are of, and their probabilities: 1 without a row."""
    logits = 4 * torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
    logits[:, 1::3] = -INF
    at = torch.arange(-1, rows).roll(rows // 2)
    ids = torch.arange(rows + 1) % width
    expected = logits.softmax(-1)[at, ids].where(at >= 0, 1)
    return logits, ids, at, expected


def test_the_probability_of_an_id_is_that_of_the_softmax_and_1_without_a_row():
    for shape in SHAPES:
        logits, ids, at, expected = probability_case(*shape)
        assert torch.allclose(token_probability(logits, ids, at), expected, rtol=1e-5, atol=0), shape
        found = token_probability(logits, ids[at >= 0], None)
        assert torch.equal(found, logits.softmax(-1).gather(1, ids[at >= 0, None]).squeeze(1)), shape


def test_parts_are_bit_for_bit_the_rows_of_the_whole(monkeypatch):
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", partial(int, threads))
        logits = torch.randn(9, 1000, generator=torch.Generator().manual_seed(1))
        whole, at = logits.softmax(-1), torch.tensor([8, 0, 3, 3, 5])
        monkeypatch.setattr(blocks, "CACHED", 2000)
        for rows, expected in ((None, whole), (at, whole[at])):
            found = [(part, softmax.clone()) for part, softmax in softmax_parts(logits, rows)]
            assert len(found) > 1, threads
            assert all(torch.equal(softmax, expected[part]) for part, softmax in found), threads
            assert torch.equal(torch.cat([softmax for _, softmax in found]), expected), threads
