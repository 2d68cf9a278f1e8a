"""Attention of single tokens: the reference is PyTorch's attention, the kernels have its values."""

import pytest
import torch

from gencli.models.decoder.attention import Block
from gencli.models.decoder.kernels.attention import SPLIT, attend_rows, num_parts
from gencli.models.kv.formats import as_stored
from tests.interpreted import interpreted

HEADS, KV_HEADS, WIDTH = 6, 2, 20
FLOAT, HALF = torch.float32, torch.float16
MODULE = "gencli.models.decoder.kernels.attention_triton"
ROWS, POSITIONS = torch.tensor([4, 0, 2, 1]), torch.tensor([400, 0, SPLIT - 1, SPLIT])
CASES = [(None, None), (16, None), (300, 5.0), (1, None), (SPLIT, None), (None, 5.0)]


def given(dtype, kv_dtype=None):
    noise = torch.Generator().manual_seed(2)
    held = torch.randn(5, 512, 2 * KV_HEADS, WIDTH, generator=noise).to(dtype)
    queries = torch.randn(len(ROWS), HEADS, WIDTH, generator=noise).to(dtype)
    return queries, as_stored(held, kv_dtype or dtype).transpose(1, 2)


def by_kernels(queries, buffer, rows, positions, end, *, window, scale, cap):
    options = (num_parts(end, window), window or 0, scale, cap or 0.0)
    parts, marks = interpreted(MODULE, "attend_parts")(queries, buffer, rows, positions, *options)
    return interpreted(MODULE, "join_parts")(parts, marks, positions, window or 0, queries.dtype)


@pytest.mark.parametrize(("window", "cap"), CASES)
def test_the_reference_is_attention_with_a_mask(window, cap):
    queries, buffer = given(FLOAT)
    places, keys = POSITIONS[:, None], torch.arange(512)
    hidden = (keys > places) | (keys <= places - (window or 512))
    mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]
    held = buffer[ROWS]
    block = Block(slice(None), slice(None), 1, 0, 512, mask)
    expected = block.attend(queries, held[:, :KV_HEADS], held[:, KV_HEADS:], 0.3, cap)
    found = attend_rows(queries, buffer, ROWS, POSITIONS, 512, window=window, scale=0.3, cap=cap)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize(("window", "cap"), CASES)
def test_the_kernels_have_the_values_of_the_reference(window, cap, dtype):
    close = {"rtol": 1e-5, "atol": 2e-6} if dtype == FLOAT else {"rtol": 2e-3, "atol": 1e-4}
    options = {"window": window, "scale": 0.3, "cap": cap}
    found, expected = (
        call(*given(dtype), ROWS, POSITIONS, 512, **options) for call in (by_kernels, attend_rows)
    )
    torch.testing.assert_close(found, expected, **close)


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("kv_dtype", [HALF, torch.float8_e4m3fn, torch.int8])
def test_narrower_keys_and_values(kv_dtype, dtype):
    options = {"window": None, "scale": 0.3, "cap": None}
    queries, buffer = given(dtype, kv_dtype)
    found, expected = (
        call(queries, buffer, ROWS, POSITIONS, 512, **options) for call in (by_kernels, attend_rows)
    )
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-4)


def test_the_bits_of_a_row_depend_on_its_own_tokens_alone():
    queries, buffer = given(FLOAT)
    options = {"window": None, "scale": 0.3, "cap": None}
    together = by_kernels(queries, buffer, ROWS, POSITIONS, 512, **options)
    for row in range(len(ROWS)):
        one = slice(row, row + 1)
        end = (int(POSITIONS[row]) // SPLIT + 1) * SPLIT
        other = buffer.clone()
        other[ROWS[row], :, int(POSITIONS[row]) + 1 :] = torch.nan  # which a later text may leave there
        alone = by_kernels(queries[one], other, ROWS[one], POSITIONS[one], end, **options)
        assert torch.equal(alone, together[one])
