"""Attention of single tokens: the reference is PyTorch's attention, the kernels have its values.

Attention of a chunk of a prompt is that of its tokens; on CUDA a kernel of PyTorch takes the chunk.
"""

import re
from collections import Counter

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gencli.models.decoder.kernels.attention import SPLIT, attend_chunk_varlen, attend_rows, num_parts
from gencli.models.kv.lane_buffers import as_stored
from tests.interpreted import ON_CUDA, interpreted
from tests.models.cases import case
from tests.models.decoder.kernels.test_attention import (
    CHUNK_HEADS,
    CHUNK_KV_HEADS,
    CHUNK_WIDTH,
    FED,
    FLOAT,
    HALF,
    KV_HEADS,
    LENGTH,
    POSITIONS,
    ROWS,
    SINKS,
    WIDTH,
    given,
    parts,
)
from tests.sham import CUDA, sham_device

MODULE = "gencli.models.decoder.kernels.attention_triton"
TILES = "gencli.models.decoder.kernels.attention_tiles_triton"
CHUNK = range(SPLIT - 10, SPLIT + 9)  # places of successive tokens in two parts


def by_kernels(queries, buffer, rows, positions, end, *, window, scale, cap, sinks=None, together=1):
    options = (num_parts(end, window), window or 0, scale, cap or 0.0)
    if together == 1:
        parts, marks = interpreted(MODULE, "attend_parts")(queries, buffer, rows, positions, *options)
    else:
        options = (*options, together)
        parts, marks = interpreted(TILES, "attend_tiles")(queries, buffer, rows, positions, *options)
    return interpreted(MODULE, "join_parts")(parts, marks, positions, window or 0, queries.dtype, sinks)


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


class Calls(TorchDispatchMode):
    """Notes the operations and their arguments."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append((function._schema.name, args))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize(("window", "sides"), [(0, [-1, 0]), (8, [7, 0])])
def test_the_kernel_for_packed_texts_gets_one_text_without_a_mask(window, sides, has_sinks, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    with sham_device():
        pass  # a build without CUDA has its device guard from here on
    with FakeTensorMode(), Calls() as calls:
        queries = torch.empty(FED, CHUNK_HEADS, CHUNK_WIDTH, dtype=torch.bfloat16, device=CUDA)
        buffer = torch.empty(
            1, LENGTH, 2 * CHUNK_KV_HEADS, CHUNK_WIDTH, dtype=torch.bfloat16, device=CUDA
        ).transpose(1, 2)
        sinks = torch.empty(CHUNK_HEADS, device=CUDA) if has_sinks else None
        made = attend_chunk_varlen(queries, *parts(buffer), window, 0.3, 0.0, sinks)
    assert (made.shape, made.dtype) == ((FED, CHUNK_HEADS * CHUNK_WIDTH), torch.bfloat16)
    ((query, key, _, *rest),) = [args for name, args in calls.seen if name == "torch_attn::_varlen_attn"]
    assert (query.shape, key.shape) == (
        (FED, CHUNK_HEADS, CHUNK_WIDTH),
        (LENGTH, CHUNK_KV_HEADS, CHUNK_WIDTH),
    )
    assert rest[2:] == [FED, LENGTH, window == 0, 0.3, sides, True, None, None, 1]
    assert [args for name, args in calls.seen if name == "aten::arange"] == [
        (0, FED + 1, FED),
        (0, LENGTH + 1, LENGTH),
    ]
