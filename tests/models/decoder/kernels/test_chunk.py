"""Attention of a chunk of a prompt is that of its tokens; on CUDA a kernel of PyTorch takes the chunk."""

from itertools import product

import torch

from gencli.models.decoder.kernels.attention import attend_chunk, attend_chunk_varlen, attend_rows
from tests.models.cases import case

HEADS, KV_HEADS, WIDTH, FED, LENGTH = 6, 2, 24, 5, 30


SINKS = torch.tensor([0.5, -3.0, 9.0, 0.0, -torch.inf, 2.0])  # of query heads; the fifth takes no share


def given():
    """Queries [W, Hq, D] of the last tokens of a text, and a buffer [1, 2 * Hkv, K, D] that holds it."""
    noise = torch.Generator().manual_seed(4)
    queries = torch.randn(FED, HEADS, WIDTH, generator=noise)
    return queries, torch.randn(1, LENGTH, 2 * KV_HEADS, WIDTH, generator=noise).transpose(1, 2)


def parts(buffer):
    held = buffer[0].transpose(0, 1)
    return held[:, :KV_HEADS], held[:, KV_HEADS:]


def test_a_token_attends_as_it_does_alone():
    for sinks, cap, window in product([None, SINKS], [None, 5.0], [None, 8]):
        with case(sinks, cap, window):
            queries, buffer = given()
            rows, positions = torch.zeros(FED, dtype=torch.int64), torch.arange(LENGTH - FED, LENGTH)
            options = {"window": window, "scale": 0.3, "cap": cap, "sinks": sinks}
            expected = attend_rows(queries, buffer, rows, positions, LENGTH, **options)
            torch.testing.assert_close(attend_chunk(queries, *parts(buffer), **options), expected)


def test_what_that_kernel_lacks_is_computed_with_a_mask():
    queries, buffer = given()
    for scale_and_cap in ((0.3, 0.0), (0.3, 5.0)):  # float32, and a cap
        found = attend_chunk_varlen(queries, *parts(buffer), 0, *scale_and_cap)
        expected = attend_chunk(queries, *parts(buffer), window=None, scale=0.3, cap=scale_and_cap[1] or None)
        assert torch.equal(found, expected)
