"""Attention of single tokens: the reference is PyTorch's attention, the kernels have its values.

Attention of a chunk of a prompt is that of its tokens; on CUDA a kernel of PyTorch takes the chunk.
"""

from itertools import product

import torch

from gencli.models.decoder.attention_plans import Block
from gencli.models.decoder.kernels.attention import SPLIT, attend_chunk, attend_chunk_varlen, attend_rows
from gencli.models.kv.lane_buffers import as_stored
from tests.models.cases import case

HEADS, KV_HEADS, WIDTH = 6, 2, 20
FLOAT, HALF = torch.float32, torch.float16
ROWS, POSITIONS = torch.tensor([4, 0, 2, 1]), torch.tensor([400, 0, SPLIT - 1, SPLIT])
CASES = [(None, None), (16, None), (300, 5.0), (1, None), (SPLIT, None), (None, 5.0)]
SINKS = torch.tensor([0.5, -3.0, 9.0, 0.0, -torch.inf, 2.0])  # of query heads; the fifth takes no share


def given(dtype, kv_dtype=None, count=4):
    noise = torch.Generator().manual_seed(2)
    held = torch.randn(5, 512, 2 * KV_HEADS, WIDTH, generator=noise).to(dtype)
    queries = torch.randn(count, HEADS, WIDTH, generator=noise).to(dtype)
    return queries, as_stored(held, kv_dtype or dtype).transpose(1, 2)


def test_the_reference_is_attention_with_a_mask():
    for window, cap in CASES:
        with case(window, cap):
            queries, buffer = given(FLOAT)
            places, keys = POSITIONS[:, None], torch.arange(512)
            hidden = (keys > places) | (keys <= places - (window or 512))
            mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]
            held = buffer[ROWS]
            block = Block(slice(None), slice(None), 1, 0, 512, mask)
            expected = block.attend(
                queries, held[:, :KV_HEADS], held[:, KV_HEADS:], window=window, scale=0.3, cap=cap
            )
            found = attend_rows(queries, buffer, ROWS, POSITIONS, 512, window=window, scale=0.3, cap=cap)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_the_reference_with_sinks_is_the_softmax_over_one_score_more():
    for window, cap in CASES:
        with case(window, cap):
            queries, buffer = given(FLOAT)
            found = attend_rows(
                queries, buffer, ROWS, POSITIONS, 512, window=window, scale=0.3, cap=cap, sinks=SINKS
            )
            for token, (row, position) in enumerate(zip(ROWS, POSITIONS, strict=True)):
                first = max(0, int(position) + 1 - (window or 512))
                held = buffer[row, :, first : position + 1].repeat_interleave(HEADS // KV_HEADS, 0)
                scores = (held[:HEADS] @ queries[token, :, :, None])[..., 0] * 0.3
                scores = scores if cap is None else (scores / cap).tanh() * cap
                shares = torch.cat([scores, SINKS[:, None]], 1).softmax(1)[:, :-1]
                expected = (shares[:, None] @ held[HEADS:])[:, 0].flatten()
                torch.testing.assert_close(found[token], expected, rtol=1e-5, atol=1e-5)


CHUNK_HEADS, CHUNK_KV_HEADS, CHUNK_WIDTH, FED, LENGTH = 6, 2, 24, 5, 30


def chunk_given():
    """Queries [W, Hq, D] of the last tokens of a text, and a buffer [1, 2 * Hkv, K, D] that holds it."""
    noise = torch.Generator().manual_seed(4)
    queries = torch.randn(FED, CHUNK_HEADS, CHUNK_WIDTH, generator=noise)
    return queries, torch.randn(1, LENGTH, 2 * CHUNK_KV_HEADS, CHUNK_WIDTH, generator=noise).transpose(1, 2)


def parts(buffer):
    held = buffer[0].transpose(0, 1)
    return held[:, :CHUNK_KV_HEADS], held[:, CHUNK_KV_HEADS:]


def test_a_token_attends_as_it_does_alone():
    for sinks, cap, window in product([None, SINKS], [None, 5.0], [None, 8]):
        with case(sinks, cap, window):
            queries, buffer = chunk_given()
            rows, positions = torch.zeros(FED, dtype=torch.int64), torch.arange(LENGTH - FED, LENGTH)
            options = {"window": window, "scale": 0.3, "cap": cap, "sinks": sinks}
            expected = attend_rows(queries, buffer, rows, positions, LENGTH, **options)
            torch.testing.assert_close(attend_chunk(queries, *parts(buffer), **options), expected)


def test_what_that_kernel_lacks_is_computed_with_a_mask():
    queries, buffer = chunk_given()
    for scale_and_cap in ((0.3, 0.0), (0.3, 5.0)):  # float32, and a cap
        found = attend_chunk_varlen(queries, *parts(buffer), 0, *scale_and_cap)
        expected = attend_chunk(queries, *parts(buffer), window=None, scale=0.3, cap=scale_and_cap[1] or None)
        assert torch.equal(found, expected)
