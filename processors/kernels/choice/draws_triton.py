"""The draw among what is left of each row with Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.facts_triton import EACH, _of_facts
from processors.kernels.choice.parts import CAPACITY, Control, Fact, Level, Mark
from processors.kernels.choice.parts_triton import _of_cooled, _of_gumbel, _of_key, _of_order, _of_row_key
from processors.rng import GAMMA, Stream, signed
from processors.sampler import BLOCK, PLAIN_LIMIT

__all__ = ["CHUNK", "OPTIONS", "draw_ids_triton", "survey_triton"]

CHUNK = 1024  # listed ids that are looked at together
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF = tl.constexpr(float("inf"))
_LIMIT, _CAPACITY = tl.constexpr(PLAIN_LIMIT), tl.constexpr(CAPACITY)
_BLOCK, _EACH, _CHUNK = tl.constexpr(BLOCK), tl.constexpr(EACH), tl.constexpr(CHUNK)
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_GREEDY, _HEAT_CUT, _HEAT_DRAW = (
    tl.constexpr(int(Control[name])) for name in ("GREEDY", "HEAT_CUT", "HEAT_DRAW")
)
_PEAK = tl.constexpr(int(Level.PEAK))
_FAULT, _LEAST, _COUNT, _LISTED, _IS_CUT = (
    tl.constexpr(int(Mark[name])) for name in ("FAULT", "LEAST", "COUNT", "LISTED", "IS_CUT")
)
_SUM = tl.constexpr(int(Fact.SUM))
_TOKEN, _BLOCK_NOISE = (tl.constexpr(signed(one * GAMMA)) for one in (Stream.TOKEN, Stream.BLOCK))


@triton.jit
def _survey(  # type: ignore[no-untyped-def]
    logits, controls, levels, marks, facts, listed, width, stride, num_blocks
):
    row = tl.program_id(0).to(tl.int64)
    controls, marks = controls + row * _CONTROLS, marks + row * _MARKS
    count, least = tl.load(marks + _COUNT), tl.load(marks + _LEAST)
    cut_heat = tl.load(controls + _HEAT_CUT).to(tl.float32)
    heat = tl.load(controls + _HEAT_DRAW).to(tl.float32)
    is_drawn = (tl.load(marks + _FAULT) == 0) & (tl.load(controls + _GREEDY) == 0)
    is_few = count <= _LIMIT
    is_summed = (is_few == 0) & ((tl.load(marks + _IS_CUT) > 0) | (cut_heat != heat))
    peak = tl.load(levels + row * _LEVELS + _PEAK).to(tl.float32)
    block = tl.program_id(1) * _EACH + tl.arange(0, _EACH)
    is_inside = block < num_blocks
    at = facts + row * 4 * num_blocks + block
    best = tl.max(tl.load(at, mask=is_inside, other=-_INF), 0)
    # Blocks whose largest logit is not kept have nothing to list.
    is_listed = is_few & (best > -_INF) & (_of_key(_of_cooled(best, peak, cut_heat)) >= (least >> 32))
    if is_drawn & (is_listed | is_summed):
        ids = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
        x = tl.load(logits + row * stride + ids, mask=ids < width, other=-_INF).to(tl.float32)
        is_kept = (x > -_INF) & (_of_order(_of_cooled(x, peak, cut_heat), ids) >= least)
        if is_few:
            flags = tl.reshape(is_kept, (_EACH * _BLOCK,))
            number = tl.sum(flags.to(tl.int64), 0)
            if number > 0:
                start = tl.atomic_add(marks + _LISTED, number)
                place = start + tl.cumsum(flags.to(tl.int32), 0) - 1
                tl.store(listed + row * _CAPACITY + place, tl.reshape(ids, (_EACH * _BLOCK,)), mask=flags)
        else:
            top, low, total, finite = _of_facts(tl.where(is_kept, x, -_INF), heat)
            tl.store(at, top, mask=is_inside)
            tl.store(at + num_blocks, low, mask=is_inside)
            tl.store(at + 2 * num_blocks, total, mask=is_inside)
            tl.store(at + 3 * num_blocks, finite, mask=is_inside)


@triton.jit
def _of_few(row, listed, count, peak, heat, key):  # type: ignore[no-untyped-def]
    """The listed id with the best noisy logit of the row at `row`, the lowest of several."""
    best, token = tl.full((), -_INF, tl.float64), tl.full((), 0, tl.int64)
    for start in range(0, count, _CHUNK):
        place = start + tl.arange(0, _CHUNK)
        is_listed = place < count
        ids = tl.load(listed + place, mask=is_listed, other=0)
        x = tl.load(row + ids, mask=is_listed, other=-_INF).to(tl.float32)
        score = _of_cooled(x, peak, heat).to(tl.float64) + _of_gumbel(key, ids)
        here = tl.max(score, 0)
        first = tl.min(tl.where(score == here, ids, 0x7FFFFFFF), 0).to(tl.int64)
        is_better = (here > best) | ((here == best) & (first < token))
        best, token = tl.where(is_better, here, best), tl.where(is_better, first, token)
    return token


@triton.jit  # type: ignore[untyped-decorator]
def _of_many(  # type: ignore[no-untyped-def]
    row, facts, num_blocks, width, peak, heat, cut_heat, least, key, block_key, BLOCKS: tl.constexpr
):
    """The id of the row at `row` drawn in two levels: its block, then the id."""
    block = tl.arange(0, BLOCKS)
    top = tl.load(facts + block, mask=block < num_blocks, other=-_INF)
    total = tl.load(facts + _SUM * num_blocks + block, mask=block < num_blocks, other=1.0)
    is_some = top > -_INF
    mass = _of_cooled(top, peak, heat).to(tl.float64) + tl.log(tl.where(is_some, total, 1.0).to(tl.float64))
    score = tl.where(is_some, mass + _of_gumbel(block_key, block), -_INF)
    ids = tl.argmax(score, 0) * _BLOCK + tl.arange(0, _BLOCK)
    x = tl.load(row + ids, mask=ids < width, other=-_INF).to(tl.float32)
    is_kept = (x > -_INF) & (_of_order(_of_cooled(x, peak, cut_heat), ids) >= least)
    value = _of_cooled(x, peak, heat).to(tl.float64) + _of_gumbel(key, ids)
    value = tl.where(is_kept, value, -_INF)
    return tl.min(tl.where(value == tl.max(value, 0), ids, 0x7FFFFFFF), 0).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _of_first(row, facts, num_blocks, width, peak, BLOCKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first of the largest logits of the row at `row`."""
    block = tl.arange(0, BLOCKS)
    top = tl.load(facts + block, mask=block < num_blocks, other=-_INF)
    ids = tl.min(tl.where(top == peak, block, BLOCKS), 0) * _BLOCK + tl.arange(0, _BLOCK)
    x = tl.load(row + ids, mask=ids < width, other=-_INF).to(tl.float32)
    return tl.min(tl.where(x == peak, ids, 0x7FFFFFFF), 0).to(tl.int64)


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    logits, controls, levels, marks, facts, listed, seeds, positions, tokens, width, stride, num_blocks,
    BLOCKS: tl.constexpr, IS_GREEDY: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    controls, marks = controls + place * _CONTROLS, marks + place * _MARKS
    row, facts = logits + place * stride, facts + place * 4 * num_blocks
    fault, peak = tl.load(marks + _FAULT), tl.load(levels + place * _LEVELS + _PEAK).to(tl.float32)
    token = fault
    if fault == 0:
        if IS_GREEDY or tl.load(controls + _GREEDY) > 0:
            token = _of_first(row, facts, num_blocks, width, peak, BLOCKS)
        else:
            seed, position = tl.load(seeds + place), tl.load(positions + place)
            key, heat = _of_row_key(seed, position, _TOKEN), tl.load(controls + _HEAT_DRAW).to(tl.float32)
            if tl.load(marks + _COUNT) <= _LIMIT:
                number = tl.load(marks + _LISTED).to(tl.int32)
                token = _of_few(row, listed + place * _CAPACITY, number, peak, heat, key)
            else:
                block_key, least = _of_row_key(seed, position, _BLOCK_NOISE), tl.load(marks + _LEAST)
                cut_heat = tl.load(controls + _HEAT_CUT).to(tl.float32)
                token = _of_many(
                    row, facts, num_blocks, width, peak, heat, cut_heat, least, key, block_key, BLOCKS
                )
    tl.store(tokens + place, token)


def survey_triton(logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, facts: Tensor) -> Tensor:
    """As survey_torch."""
    rows, width = logits.shape
    ids = torch.empty((rows, CAPACITY), dtype=torch.int32, device=logits.device)
    blocks = facts.shape[2]
    grid = (rows, triton.cdiv(blocks, EACH))
    _survey[grid](logits, controls, levels, marks, facts, ids, width, logits.stride(0), blocks, **OPTIONS)
    return ids


def draw_ids_triton(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    marks: Tensor,
    facts: Tensor,
    ids: Tensor | None,
    seeds: Tensor,
    positions: Tensor,
) -> Tensor:
    """As draw_ids_torch."""
    rows, width = logits.shape
    tokens, blocks = torch.empty_like(seeds), facts.shape[2]
    listed = facts if ids is None else ids
    sizes = {"BLOCKS": max(16, triton.next_power_of_2(blocks)), "IS_GREEDY": ids is None}
    _draw[(rows,)](
        logits, controls, levels, marks, facts, listed, seeds, positions, tokens, width, logits.stride(0),
        blocks, **sizes, **OPTIONS,
    )  # fmt: skip
    return tokens
