"""Attention of single tokens over rows of the KV cache with Triton.

A program of the first kernel reads one part of one row for the query heads of one key head; every key and
value that a row holds is read once. Programs beyond the length of their row leave at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gencli.models.decoder.kernels.attention import SPLIT

__all__ = ["FORMATS", "LEAST", "OPTIONS", "attend_parts", "join_parts", "num_held", "padded_to"]

OPTIONS = {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": False}
_HELD = 2**15  # bytes of keys that a program holds at a time, and as many of values
_JOINED = 32  # parts that are joined at a time
FORMATS = {torch.float8_e4m3fn: "fp8", torch.int8: "int8"}
_VARIED = ["num", "window"]  # differ from step to step or layer to layer, and need no kernel of their own
LEAST = -3e38  # below every score; minus infinity less itself would be no number


@triton.jit
def _of_oldest(position, window):  # type: ignore[no-untyped-def]
    """The place of the first key that a query sees; 0 without a window, which then is 0."""
    return tl.where(window > 0, tl.maximum(position + 1 - window, 0), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _of_stored(  # type: ignore[no-untyped-def]
    cells, places, width, is_token, dtype: tl.constexpr, FORMAT: tl.constexpr
):
    """Keys or values of some tokens [T, D] as `dtype`; `cells` [T] are pointers to their first numbers."""
    is_read = is_token[:, None] & (places < width)[None, :]
    stored = tl.load(cells[:, None] + places[None, :], mask=is_read, other=0)
    if FORMAT == "int8":
        # The scale of a token and head lies behind its codes.
        scales = tl.load((cells + width).to(tl.pointer_type(tl.float32)), mask=is_token, other=0.0)
        return (stored.to(tl.float32) * scales[:, None]).to(dtype)
    if FORMAT == "fp8":
        # A float16 with the same exponent is 2^8 times smaller. 127 without its sign is no number.
        code = stored.to(tl.int16)
        half = (((code & 128) << 8) | ((code & 127) << 7)).to(tl.float16, bitcast=True)
        wide = tl.where((code & 127) == 127, float("nan"), half.to(tl.float32) * 256.0)
        return wide.to(dtype)
    return stored.to(dtype)


@triton.jit  # type: ignore[untyped-decorator]
def _of_block(  # type: ignore[no-untyped-def]
    asked, keys, values, is_seen, top, total, found, scale, cap, HAS_CAP: tl.constexpr
):
    """The largest score, the sum of weights and that of values, with the keys of a block added."""
    scores = tl.dot(asked, tl.trans(keys), input_precision="tf32x3") * scale
    if HAS_CAP:
        scores = cap * (1.0 - 2.0 / (tl.exp(2.0 * (scores / cap)) + 1.0))  # tanh
    scores = tl.where(is_seen, scores, -float("inf"))
    larger = tl.maximum(top, tl.max(scores, axis=1))
    weights = tl.exp(scores - larger[:, None])
    shrunk = tl.exp(top - larger)
    total = total * shrunk + tl.sum(weights, axis=1)
    added = tl.dot(weights.to(asked.dtype), values, input_precision="tf32x3")
    return larger, total, found * shrunk[:, None] + added


@triton.jit(do_not_specialize=_VARIED)  # type: ignore[untyped-decorator]
def _parts_kernel(  # type: ignore[no-untyped-def]
    queries,
    buffer,
    rows,
    positions,
    sums,
    marks,
    kv_heads,
    group,
    width,
    num,
    window,
    row_stride,
    head_stride,
    token_stride,
    scale,
    cap,
    HAS_CAP: tl.constexpr,
    FORMAT: tl.constexpr,
    SPLIT: tl.constexpr,
    TOKENS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    LEAST: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    position = tl.load(positions + token)
    oldest = _of_oldest(position, window)
    start = (oldest // SPLIT + part) * SPLIT
    if start > position:
        return
    dtype = queries.dtype.element_ty
    members = tl.arange(0, GROUP)
    places = tl.arange(0, WIDTH)
    heads = token * kv_heads * group + kv_head * group + members
    is_asked = (members < group)[:, None] & (places < width)[None, :]
    asked = tl.load(queries + heads[:, None] * width + places[None, :], mask=is_asked, other=0.0)
    base = buffer + tl.load(rows + token) * row_stride + kv_head * head_stride
    top = tl.full((GROUP,), LEAST, tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    found = tl.zeros((GROUP, WIDTH), tl.float32)
    for block in range(0, SPLIT, TOKENS):
        at = start + block + tl.arange(0, TOKENS)
        is_seen = (at <= position) & (at >= oldest)
        cells = base + at * token_stride
        keys = _of_stored(cells, places, width, is_seen, dtype, FORMAT)
        values = _of_stored(cells + kv_heads * head_stride, places, width, is_seen, dtype, FORMAT)
        top, total, found = _of_block(
            asked, keys, values, is_seen[None, :], top, total, found, scale, cap, HAS_CAP
        )
    cell = heads * num + part
    tl.store(sums + cell[:, None] * width + places[None, :], found, mask=is_asked)
    tl.store(marks + cell * 2, top, mask=members < group)
    tl.store(marks + cell * 2 + 1, total, mask=members < group)


@triton.jit(do_not_specialize=_VARIED)  # type: ignore[untyped-decorator]
def _join_kernel(  # type: ignore[no-untyped-def]
    sums,
    marks,
    positions,
    sinks,
    out,
    heads,
    width,
    num,
    window,
    HAS_SINKS: tl.constexpr,
    SPLIT: tl.constexpr,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    LEAST: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = token * heads + tl.program_id(1)
    position = tl.load(positions + token)
    count = position // SPLIT - _of_oldest(position, window) // SPLIT + 1
    places = tl.arange(0, WIDTH)
    top = tl.full((1,), LEAST, tl.float32)
    total = tl.zeros((1,), tl.float32)
    if HAS_SINKS:  # a score whose weight is 1 while it is the largest one, and whose value is zero
        top = tl.zeros((1,), tl.float32) + tl.load(sinks + tl.program_id(1))
        total = tl.full((1,), 1.0, tl.float32)
    found = tl.zeros((WIDTH,), tl.float32)
    for block in range(0, count, PARTS):
        parts = block + tl.arange(0, PARTS)
        cells = head * num + parts
        tops = tl.load(marks + cells * 2, mask=parts < count, other=LEAST)
        totals = tl.load(marks + cells * 2 + 1, mask=parts < count, other=0.0)
        is_read = (parts < count)[:, None] & (places < width)[None, :]
        values = tl.load(sums + cells[:, None] * width + places[None, :], mask=is_read, other=0.0)
        larger = tl.maximum(top, tl.max(tops, axis=0))
        weights = tl.exp(tops - larger)
        shrunk = tl.exp(top - larger)
        total = total * shrunk + tl.sum(totals * weights, axis=0)
        found = found * shrunk + tl.sum(values * weights[:, None], axis=0)
        top = larger
    made = (found / total).to(out.dtype.element_ty)
    tl.store(out + head * width + places, made, mask=places < width)


def padded_to(size: int) -> int:
    """Return the size of a side of a product's tile."""
    return max(16, int(triton.next_power_of_2(size)))


def num_held(width: int, itemsize: int) -> int:
    """Return how many keys a program holds at a time, of a width (padded) in numbers of some bytes."""
    return max(16, min(SPLIT, _HELD // (width * itemsize)))


def attend_parts(
    queries: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    num: int,
    window: int,
    scale: float,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """As the operation attend_parts. What lies in parts beyond a row's length is not written."""
    count, heads, width = queries.shape
    kv_heads = buffer.shape[1] // 2
    sums = torch.empty(count, heads, num, width, dtype=torch.float32, device=queries.device)
    marks = sums.new_empty(count, heads, num, 2)
    padded = padded_to(width)
    _parts_kernel[(count, kv_heads, num)](
        queries,
        buffer.view(torch.uint8) if buffer.dtype == torch.float8_e4m3fn else buffer,
        rows,
        positions,
        sums,
        marks,
        kv_heads,
        heads // kv_heads,
        width,
        num,
        window,
        buffer.stride(0),
        buffer.stride(1),
        buffer.stride(2),
        scale,
        cap,
        HAS_CAP=cap > 0,
        FORMAT=FORMATS.get(buffer.dtype, "float"),
        SPLIT=SPLIT,
        TOKENS=num_held(padded, queries.itemsize),
        GROUP=padded_to(heads // kv_heads),
        WIDTH=padded,
        LEAST=LEAST,
        **OPTIONS,
    )
    return sums, marks


def join_parts(
    parts: Tensor,
    marks: Tensor,
    positions: Tensor,
    window: int,
    dtype: torch.dtype,
    sinks: Tensor | None,
) -> Tensor:
    """As the operation join_parts."""
    count, heads, num, width = parts.shape
    out = torch.empty(count, heads * width, dtype=dtype, device=parts.device)
    _join_kernel[(count, heads)](
        parts,
        marks,
        positions,
        sinks,
        out,
        heads,
        width,
        num,
        window,
        HAS_SINKS=sinks is not None,
        SPLIT=SPLIT,
        PARTS=_JOINED,
        WIDTH=triton.next_power_of_2(width),
        LEAST=LEAST,
        **OPTIONS,
    )
    return out
