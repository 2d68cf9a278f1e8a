"""The draw of a row by Gumbel-max, inlined into the kernel of listed_triton.py.

Up to PLAIN_LIMIT kept ids: argmax of logit + Gumbel noise over these ids. Above: two levels, as `Sampler`
draws them, first a block by its log-sum-exp plus noise, then an id in it. Noise is float64 from int64 random
bits, keyed by seed, position and id, as in the twin.
"""

from __future__ import annotations

import triton
import triton.language as tl

from processors.kernels.choice.facts_triton import EACH, _of_facts
from processors.kernels.choice.parts_triton import (
    _of_cooled,
    _of_gumbel,
    _of_key,
    _of_logits,
    _of_order,
    _of_row_key,
)
from processors.kernels.choice.tables import Control, Fact
from processors.rng import GAMMA, Stream, signed
from processors.sampler import BLOCK, PLAIN_LIMIT

__all__ = ["FEW", "OPTIONS"]

FEW = 256  # ids per iteration of the one-level draw
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_LIMIT, _FEW, _LIST = tl.constexpr(PLAIN_LIMIT), tl.constexpr(FEW), tl.constexpr(1024)
_BLOCK, _EACH = tl.constexpr(BLOCK), tl.constexpr(EACH)
_HEAT_CUT, _HEAT_DRAW = (tl.constexpr(int(Control[name])) for name in ("HEAT_CUT", "HEAT_DRAW"))
_SUM = tl.constexpr(int(Fact.SUM))
_TOKEN, _BLOCK_NOISE = (tl.constexpr(signed(one * GAMMA)) for one in (Stream.TOKEN, Stream.BLOCK))


@triton.jit
def _of_kept(listed, number, least, ids):  # type: ignore[no-untyped-def]
    """Store the ids of the candidates whose order is at least `least`."""
    base = tl.full((), 0, tl.int32)
    for start in range(0, number, _LIST):
        place = start + tl.arange(0, _LIST)
        orders = tl.load(listed + place, mask=place < number, other=_INT_MIN)
        is_kept = (orders >= least) & (place < number)
        at = base + tl.cumsum(is_kept.to(tl.int32), 0) - 1
        tl.store(ids + at, 0x7FFFFFFF - (orders & 0x7FFFFFFF), mask=is_kept)
        base += tl.sum(is_kept.to(tl.int32), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _of_survey(  # type: ignore[no-untyped-def]
    row, patch, facts, num_blocks, width, peak, heat, cut_heat, least, is_few, ids, HAS_PATCH: tl.constexpr
):
    """Read the row again: store the ids of its kept logits if few, else the facts of its blocks of these."""
    base = tl.full((), 0, tl.int32)
    for first in range(0, num_blocks, _EACH):
        block = first + tl.arange(0, _EACH)
        at, is_inside = facts + block, block < num_blocks
        best = tl.max(tl.load(at, mask=is_inside, other=-_INF), 0)
        # A block whose maximum is below the threshold keeps no logit.
        has_some = (best > -_INF) & (_of_key(_of_cooled(best, peak, cut_heat)) >= (least >> 32))
        if has_some | (is_few == 0):
            column = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
            x = _of_logits(row, patch, column, column < width, width, HAS_PATCH)
            is_kept = (x > -_INF) & (_of_order(_of_cooled(x, peak, cut_heat), column) >= least)
            if is_few:
                flags = tl.reshape(is_kept, (_EACH * _BLOCK,))
                place = base + tl.cumsum(flags.to(tl.int32), 0) - 1
                tl.store(ids + place, tl.reshape(column, (_EACH * _BLOCK,)).to(tl.int64), mask=flags)
                base += tl.sum(flags.to(tl.int32), 0)
            else:
                top, low, total, finite = _of_facts(tl.where(is_kept, x, -_INF), heat)
                tl.store(at, top, mask=is_inside)
                tl.store(at + num_blocks, low, mask=is_inside)
                tl.store(at + 2 * num_blocks, total, mask=is_inside)
                tl.store(at + 3 * num_blocks, finite, mask=is_inside)


@triton.jit  # type: ignore[untyped-decorator]
def _of_few(  # type: ignore[no-untyped-def]
    row, patch, listed, count, width, peak, heat, key, HAS_PATCH: tl.constexpr
):
    """The listed id with the largest logit + noise; the lowest id wins a tie."""
    best, token = tl.full((), -_INF, tl.float64), tl.full((), 0, tl.int64)
    for start in range(0, count, _FEW):
        place = start + tl.arange(0, _FEW)
        is_listed = place < count
        ids = tl.load(listed + place, mask=is_listed, other=0)
        x = _of_logits(row, patch, ids, is_listed, width, HAS_PATCH)
        score = _of_cooled(x, peak, heat).to(tl.float64) + _of_gumbel(key, ids)
        here = tl.max(score, 0)
        first = tl.min(tl.where(score == here, ids, 0x7FFFFFFF), 0)
        is_better = (here > best) | ((here == best) & (first < token))
        best, token = tl.where(is_better, here, best), tl.where(is_better, first, token)
    return token


@triton.jit  # type: ignore[untyped-decorator]
def _of_many(  # type: ignore[no-untyped-def]
    row, patch, facts, num_blocks, width, peak, heat, cut_heat, least, key, block_key,
    BLOCKS: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """The id of the two-level draw: a block by its log-sum-exp, then an id in it."""
    block = tl.arange(0, BLOCKS)
    top = tl.load(facts + block, mask=block < num_blocks, other=-_INF)
    total = tl.load(facts + _SUM * num_blocks + block, mask=block < num_blocks, other=1.0)
    is_some = top > -_INF
    mass = _of_cooled(top, peak, heat).to(tl.float64) + tl.log(tl.where(is_some, total, 1.0).to(tl.float64))
    score = tl.where(is_some, mass + _of_gumbel(block_key, block), -_INF)
    ids = tl.argmax(score, 0) * _BLOCK + tl.arange(0, _BLOCK)
    x = _of_logits(row, patch, ids, ids < width, width, HAS_PATCH)
    is_kept = (x > -_INF) & (_of_order(_of_cooled(x, peak, cut_heat), ids) >= least)
    value = _of_cooled(x, peak, heat).to(tl.float64) + _of_gumbel(key, ids)
    value = tl.where(is_kept, value, -_INF)
    return tl.min(tl.where(value == tl.max(value, 0), ids, 0x7FFFFFFF), 0).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _of_draw(  # type: ignore[no-untyped-def]
    row, patch, facts, ids, controls, seed, position, num_blocks, width, peak, least, count,
    BLOCKS: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """The token of a row: drawn among its listed ids, or in two levels by the facts of its blocks."""
    key, heat = _of_row_key(seed, position, _TOKEN), tl.load(controls + _HEAT_DRAW).to(tl.float32)
    if count <= _LIMIT:
        token = _of_few(row, patch, ids, count.to(tl.int32), width, peak, heat, key, HAS_PATCH)
    else:
        block_key = _of_row_key(seed, position, _BLOCK_NOISE)
        cut_heat = tl.load(controls + _HEAT_CUT).to(tl.float32)
        token = _of_many(
            row, patch, facts, num_blocks, width, peak, heat, cut_heat, least, key, block_key, BLOCKS,
            HAS_PATCH,
        )  # fmt: skip
    return token
