"""Attention of single tokens: the reference is PyTorch's attention, the kernels have its values."""

import re
from collections import Counter
from itertools import product

import pytest
import torch

from gencli.models.decoder.attention import Block
from gencli.models.decoder.kernels.attention import SPLIT, attend_rows, num_parts
from gencli.models.kv.formats import as_stored
from tests.interpreted import ON_CUDA, interpreted
from tests.models.cases import case

HEADS, KV_HEADS, WIDTH = 6, 2, 20
FLOAT, HALF = torch.float32, torch.float16
MODULE = "gencli.models.decoder.kernels.attention_triton"
TILES = "gencli.models.decoder.kernels.attention_tiles_triton"
ROWS, POSITIONS = torch.tensor([4, 0, 2, 1]), torch.tensor([400, 0, SPLIT - 1, SPLIT])
CHUNK = range(SPLIT - 10, SPLIT + 9)  # places of successive tokens in two parts
CASES = [(None, None), (16, None), (300, 5.0), (1, None), (SPLIT, None), (None, 5.0)]
SINKS = torch.tensor([0.5, -3.0, 9.0, 0.0, -torch.inf, 2.0])  # of query heads; the fifth takes no share


def given(dtype, kv_dtype=None, count=4):
    noise = torch.Generator().manual_seed(2)
    held = torch.randn(5, 512, 2 * KV_HEADS, WIDTH, generator=noise).to(dtype)
    queries = torch.randn(count, HEADS, WIDTH, generator=noise).to(dtype)
    return queries, as_stored(held, kv_dtype or dtype).transpose(1, 2)


def by_kernels(queries, buffer, rows, positions, end, *, window, scale, cap, sinks=None, together=1):
    options = (num_parts(end, window), window or 0, scale, cap or 0.0)
    if together == 1:
        parts, marks = interpreted(MODULE, "attend_parts")(queries, buffer, rows, positions, *options)
    else:
        options = (*options, together)
        parts, marks = interpreted(TILES, "attend_tiles")(queries, buffer, rows, positions, *options)
    return interpreted(MODULE, "join_parts")(parts, marks, positions, window or 0, queries.dtype, sinks)


def test_the_reference_is_attention_with_a_mask():
    for window, cap in CASES:
        with case(window, cap):
            queries, buffer = given(FLOAT)
            places, keys = POSITIONS[:, None], torch.arange(512)
            hidden = (keys > places) | (keys <= places - (window or 512))
            mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None, None]
            held = buffer[ROWS]
            block = Block(slice(None), slice(None), 1, 0, 512, mask)
            expected = block.attend(queries, held[:, :KV_HEADS], held[:, KV_HEADS:], 0.3, cap)
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


def check_values(window, cap, dtype, sinks):
    close = {"rtol": 1e-5, "atol": 2e-6} if dtype == FLOAT else {"rtol": 2e-3, "atol": 1e-4}
    options = {"window": window, "scale": 0.3, "cap": cap, "sinks": sinks}
    found, expected = (
        call(*given(dtype), ROWS, POSITIONS, 512, **options) for call in (by_kernels, attend_rows)
    )
    torch.testing.assert_close(found, expected, **close)


def check_narrower(kv_dtype, dtype):
    options = {"window": None, "scale": 0.3, "cap": None}
    queries, buffer = given(dtype, kv_dtype)
    found, expected = (
        call(queries, buffer, ROWS, POSITIONS, 512, **options) for call in (by_kernels, attend_rows)
    )
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-4)


def test_the_kernels_have_the_values_of_the_reference():
    for values in ((16, None, FLOAT, SINKS), (300, 5.0, HALF, None)):
        with case(*values):
            check_values(*values)
    for formats in ((torch.float8_e4m3fn, HALF), (torch.int8, FLOAT)):
        with case(*formats):
            check_narrower(*formats)


def test_the_kernels_have_the_values_of_the_reference_in_all_shapes():
    for (window, cap), dtype, sinks in product(CASES, (FLOAT, HALF), (None, SINKS)):
        with case(window, cap, dtype, sinks):
            check_values(window, cap, dtype, sinks)
    for formats in product((HALF, torch.float8_e4m3fn, torch.int8), (FLOAT, HALF)):
        with case(*formats):
            check_narrower(*formats)


DRAFTED = torch.tensor([3, 3, 3, 1]), torch.tensor([SPLIT - 2, SPLIT - 1, SPLIT, 7])


def test_the_bits_of_a_row_depend_on_its_own_tokens_alone():
    for rows, positions in [(ROWS, POSITIONS), DRAFTED]:
        with case(rows, positions):
            queries, buffer = given(FLOAT)
            options = {"window": None, "scale": 0.3, "cap": None}
            together = by_kernels(queries, buffer, rows, positions, 512, **options)
            for row in range(len(rows)):
                one = slice(row, row + 1)
                end = (int(positions[row]) // SPLIT + 1) * SPLIT
                other = buffer.clone()
                other[rows[row], :, int(positions[row]) + 1 :] = (
                    torch.nan
                )  # which later or refused tokens may leave
                alone = by_kernels(queries[one], other, rows[one], positions[one], end, **options)
                assert torch.equal(alone, together[one])


def chunk_given(kv_dtype):
    """Queries of a chunk, and a buffer. The interpreter's products sum rows in several orders: exact sums."""
    queries, buffer = given(HALF, kv_dtype, len(CHUNK))
    if ON_CUDA:
        return queries, buffer
    signs = torch.randint(-1, 2, (5, 512, 2 * KV_HEADS, WIDTH), generator=torch.Generator().manual_seed(5))
    return (queries * 4).round() / 16, as_stored(signs.half(), kv_dtype or HALF).transpose(1, 2)


def check_chunk(window, cap, kv_dtype, sinks):
    queries, buffer = chunk_given(kv_dtype)
    rows, positions = torch.full((len(CHUNK),), 3), torch.tensor(CHUNK)
    options = {"window": window, "scale": 0.3, "cap": cap, "sinks": sinks}
    alone = by_kernels(queries, buffer, rows, positions, CHUNK.stop, **options)
    for first, together in ((0, 16), (7, 3)):
        cells = (queries[first:], buffer, rows[first:], positions[first:], CHUNK.stop)
        assert torch.equal(by_kernels(*cells, **options, together=together), alone[first:])
        assert torch.equal(attend_rows(*cells, **options, together=together), attend_rows(*cells, **options))


def test_a_token_has_the_same_bits_alone_and_among_the_tokens_of_a_prompt():
    check_chunk(16, 5.0, torch.int8, SINKS)


@pytest.mark.parametrize(
    ("window", "cap", "kv_dtype", "sinks"),
    [
        (None, None, None, None),
        (16, 5.0, None, None),
        (SPLIT, None, torch.float8_e4m3fn, None),
        (None, None, torch.int8, SINKS),
        (16, None, None, SINKS),
    ],
)
def test_a_token_has_the_same_bits_among_the_tokens_of_a_prompt_in_all_shapes(window, cap, kv_dtype, sinks):
    check_chunk(window, cap, kv_dtype, sinks)


NUMBERS = re.compile(r"\b((?:mma|ex2|add|sub|mul|fma|max|div|shfl)\.[\w.:]*(?:f32|bf16|f16|b32)[\w.:]*)")


def check_instructions(name, target):
    pytest.importorskip("triton")
    from tests.compiled.aot import builds, compiled

    alone = compiled(MODULE, builds(MODULE)[f"parts, {name}"], target).asm
    many = compiled(TILES, builds(TILES)[f"tiles, {name}"], target).asm
    assert instructions(alone) == instructions(many)


@pytest.fixture
def own_compiler_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def instructions(made):
    """How often each instruction that computes numbers occurs, and how they are spread over threads."""
    spread = re.findall(r"#mma\d* = .*", made["ttgir"])
    return Counter(NUMBERS.findall(made["ptx"])), spread


def test_a_token_and_the_tokens_of_a_prompt_are_computed_by_the_same_instructions(own_compiler_cache):
    check_instructions("bf16, 128", 90)


@pytest.mark.parametrize("target", [80, 90])
@pytest.mark.parametrize("name", ["bf16, 128", "bf16, 256", "fp32, 128", "bf16 over int8, 128"])
def test_all_builds_of_attention_compute_by_the_same_instructions(name, target, own_compiler_cache):
    check_instructions(name, target)
