"""The first launch of attention_triton for successive tokens of rows, which share the reads of their keys.

A product's tile has room for 16 query heads, where those of one token and key head are 1 to 8: further tokens
fill it up. Rows of a tile do not depend on each other, and the shapes and the order of all operations are
those for a single token, so its bits are the same.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gencli.models.decoder.kernels.attention import SPLIT
from gencli.models.decoder.kernels.attention_triton import (
    FORMATS,
    LEAST,
    OPTIONS,
    _of_block,
    _of_oldest,
    _of_stored,
    num_held,
    padded_to,
)

__all__ = ["OPTIONS", "attend_tiles"]

_MAX_REGISTERS = {"maxnreg": 128}  # where keys are held from tile to tile: two programs a multiprocessor
_VARIED = ["rows", "positions", "num_tokens", "together", "num", "window"]


@triton.jit(do_not_specialize=_VARIED)  # type: ignore[untyped-decorator]
def _tiles_kernel(  # type: ignore[no-untyped-def]
    queries,
    buffer,
    rows,
    positions,
    sums,
    marks,
    num_tokens,
    together,
    kv_heads,
    width,
    num,
    window,
    row_stride,
    head_stride,
    token_stride,
    scale,
    cap,
    IS_HELD: tl.constexpr,
    HAS_CAP: tl.constexpr,
    FORMAT: tl.constexpr,
    SPLIT: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    LEAST: tl.constexpr,
):
    EACH: tl.constexpr = GROUP // HEADS  # tokens of a tile
    first = tl.program_id(0).to(tl.int64) * together
    kv_head = tl.program_id(1)
    count = tl.minimum(together, num_tokens - first)
    position = tl.load(positions + first)
    last = position + count - 1
    oldest = _of_oldest(position, window)
    part = oldest // SPLIT + tl.program_id(2)
    start = part * SPLIT
    if start > last:
        return
    dtype = queries.dtype.element_ty
    members = tl.arange(0, GROUP)
    places = tl.arange(0, WIDTH)
    base = buffer + tl.load(rows + first) * row_stride + kv_head * head_stride
    if IS_HELD:  # read once for all tiles
        at = start + tl.arange(0, TOKENS)
        is_read = (at <= last) & (at >= oldest)
        cells = base + at * token_stride
        keys = _of_stored(cells, places, width, is_read, dtype, FORMAT)
        values = _of_stored(cells + kv_heads * head_stride, places, width, is_read, dtype, FORMAT)
    # Tiles of tokens before the part have no keys in it.
    for tile in range(tl.maximum(start - position, 0) // EACH, tl.cdiv(count, EACH)):
        number = tile * EACH + members // HEADS
        own = position + number
        own_oldest = _of_oldest(own, window)
        is_there = (members < EACH * HEADS) & (number < count)
        heads = ((first + number) * kv_heads + kv_head) * HEADS + members % HEADS
        is_asked = is_there[:, None] & (places < width)[None, :]
        asked = tl.load(queries + heads[:, None] * width + places[None, :], mask=is_asked, other=0.0)
        top = tl.full((GROUP,), LEAST, tl.float32)
        total = tl.zeros((GROUP,), tl.float32)
        found = tl.zeros((GROUP, WIDTH), tl.float32)
        for block in range(0, SPLIT, TOKENS):
            at = start + block + tl.arange(0, TOKENS)
            if not IS_HELD:
                is_read = (at <= last) & (at >= oldest)
                cells = base + at * token_stride
                keys = _of_stored(cells, places, width, is_read, dtype, FORMAT)
                values = _of_stored(cells + kv_heads * head_stride, places, width, is_read, dtype, FORMAT)
            is_seen = (at[None, :] <= own[:, None]) & (at[None, :] >= own_oldest[:, None])
            top, total, found = _of_block(
                asked, keys, values, is_seen, top, total, found, scale, cap, HAS_CAP
            )
        slot = part - own_oldest // SPLIT  # among the parts of the token's keys
        is_made = is_there & (slot >= 0) & (start <= own)
        cell = heads * num + slot
        is_stored = is_made[:, None] & (places < width)[None, :]
        tl.store(sums + cell[:, None] * width + places[None, :], found, mask=is_stored)
        tl.store(marks + cell * 2, top, mask=is_made)
        tl.store(marks + cell * 2 + 1, total, mask=is_made)


def attend_tiles(
    queries: Tensor,
    buffer: Tensor,
    rows: Tensor,
    positions: Tensor,
    num: int,
    window: int,
    scale: float,
    cap: float,
    together: int,
) -> tuple[Tensor, Tensor]:
    """As the operation attend_tiles. What lies in parts beyond a row's length is not written."""
    count, heads, width = queries.shape
    kv_heads = buffer.shape[1] // 2
    sums = torch.empty(count, heads, num, width, dtype=torch.float32, device=queries.device)
    marks = sums.new_empty(count, heads, num, 2)
    padded, group = padded_to(width), heads // kv_heads
    held = num_held(padded, queries.itemsize)
    is_held = held == SPLIT and queries.itemsize == 2  # in float32 they take more shared memory than there is
    most = num + -(-(together - 1) // SPLIT) if window else num  # parts of all tokens of a program
    _tiles_kernel[(triton.cdiv(count, together), kv_heads, most)](
        queries,
        buffer.view(torch.uint8) if buffer.dtype == torch.float8_e4m3fn else buffer,
        rows,
        positions,
        sums,
        marks,
        count,
        together,
        kv_heads,
        width,
        num,
        window,
        buffer.stride(0),
        buffer.stride(1),
        buffer.stride(2),
        scale,
        cap,
        IS_HELD=is_held,
        HAS_CAP=cap > 0,
        FORMAT=FORMATS.get(buffer.dtype, "float"),
        SPLIT=SPLIT,
        TOKENS=held,
        HEADS=group,
        GROUP=padded_to(group),
        WIDTH=padded,
        LEAST=LEAST,
        **OPTIONS | (_MAX_REGISTERS if is_held else {}),
    )
    return sums, marks
