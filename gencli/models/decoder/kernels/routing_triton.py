"""The choice of experts and the sum over them with Triton.

One program chooses for all rows, as an expert's list is in the order of rows: some rows a turn, whose number
depends on that of the experts alone, so that a row has the same bits among any others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gencli.models.decoder.decoder_layers import num_entries

__all__ = ["BLOCK", "CELLS", "MAX_ROWS", "OPTIONS", "mixed", "routed"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}
CELLS, MAX_ROWS = 4096, 64  # rows times experts of a turn, and its rows, at most
BLOCK = 1024  # numbers of a row that a program adds up


@triton.jit(do_not_specialize=["rows", "num_tiles"])  # type: ignore[untyped-decorator]
def _route(  # type: ignore[no-untyped-def]
    logits, shares, lists, tiles, rows, experts, used, num_tiles, block,
    IS_NORMALIZED: tl.constexpr, ROWS: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    numbers = tl.arange(0, EXPERTS)
    is_expert = numbers < experts
    counts = tl.zeros((EXPERTS,), tl.int32)
    for start in range(0, rows, ROWS):
        own = start + tl.arange(0, ROWS)
        is_row = (own < rows)[:, None]
        cells = own.to(tl.int64)[:, None] * experts + numbers[None, :]
        given = tl.load(logits + cells, mask=is_row & is_expert[None, :], other=0.0).to(tl.float32)
        given = tl.where(is_expert[None, :], given, float("-inf"))
        odds = tl.exp(given - tl.max(given, 1)[:, None])
        odds = odds / tl.sum(odds, 1)[:, None]
        # Bits of positive numbers are in the numbers' order; a NaN is above all.
        keys = tl.where(is_expert[None, :], odds.to(tl.int32, bitcast=True) & 0x7FFFFFFF, -2)
        is_used = tl.zeros((ROWS, EXPERTS), tl.int32)
        for _ in range(used):
            is_best = numbers[None, :] == tl.argmax(keys, 1)[:, None]
            is_used = tl.where(is_best, 1, is_used)
            keys = tl.where(is_best, -1, keys)
        if IS_NORMALIZED:
            odds = odds / tl.sum(tl.where(is_used == 1, odds, 0.0), 1)[:, None]
        is_used = tl.where(is_row, is_used, 0)
        pairs = own[:, None] * used + tl.cumsum(is_used, 1) - is_used
        tl.store(shares + pairs, odds.to(shares.dtype.element_ty), mask=is_used == 1)
        places = counts[None, :] + tl.cumsum(is_used, 0) - is_used
        tl.store(lists + numbers.to(tl.int64)[None, :] * rows + places, pairs, mask=is_used == 1)
        counts += tl.sum(is_used, 0)
    sizes = tl.cdiv(counts, block)
    firsts = tl.cumsum(sizes, 0) - sizes
    for tile in range(tl.cdiv(rows, block)):
        entries, is_needed = tiles + (firsts + tile) * 3, tile < sizes
        tl.store(entries, numbers, mask=is_needed)
        tl.store(entries + 1, tile * block + numbers * 0, mask=is_needed)
        tl.store(entries + 2, tl.minimum(counts - tile * block, block), mask=is_needed)
    for start in range(tl.sum(sizes, 0), num_tiles, EXPERTS):
        tl.store(tiles + (start + numbers) * 3 + 2, numbers * 0, mask=start + numbers < num_tiles)


@triton.jit  # type: ignore[untyped-decorator]
def _mix(made, shares, out, width, used, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = places < width
    total = tl.zeros((BLOCK,), tl.float32)
    for pair in range(row * used, (row + 1) * used):
        found = tl.load(made + pair * width + places, mask=is_inside, other=0.0).to(tl.float32)
        total += found * tl.load(shares + pair).to(tl.float32)
    tl.store(out + row * width + places, total.to(out.dtype.element_ty), mask=is_inside)


def routed(logits: Tensor, used: int, is_normalized: bool, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """As the operation route_experts. `logits` are contiguous."""
    rows, experts = logits.shape
    shares, width = logits.new_empty(rows, used), triton.next_power_of_2(experts)
    lists = torch.empty(experts, rows, dtype=torch.int32, device=logits.device)
    count = num_entries(rows, experts, used, block)
    tiles = torch.empty(count, 3, dtype=torch.int32, device=logits.device)
    if rows:
        turn = max(1, min(MAX_ROWS, CELLS // width))
        _route[(1,)](
            logits, shares, lists, tiles, rows, experts, used, count, block,
            IS_NORMALIZED=is_normalized, ROWS=turn, EXPERTS=width, **OPTIONS,
        )  # fmt: skip
    return shares, lists, tiles


def mixed(made: Tensor, shares: Tensor) -> Tensor:
    """As the operation mix_experts. Both are contiguous."""
    (rows, used), width = shares.shape, made.shape[1]
    out = made.new_empty(rows, width)
    if rows:
        _mix[(rows, triton.cdiv(width, BLOCK))](made, shares, out, width, used, BLOCK=BLOCK, **OPTIONS)
    return out
