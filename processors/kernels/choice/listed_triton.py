"""The kernel of draw_listed: candidate list, threshold and draw of each open row.

Grid (R, programs). Programs of a row share its blocks, EACH at a time, skip those whose maximum is no
candidate, and append the orders of candidates to the row's list. The program that finishes last finds the
threshold (cuts_triton.py) and draws (draws_triton.py). The sequence in the list depends on timing; the result
does not, as the threshold needs integer sums alone, and the draw an argmax with ties broken by id. For the
two-level draw the row's facts are overwritten by those of its kept logits at the temperature of the draw.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.cuts_triton import _of_cut
from processors.kernels.choice.draws_triton import _of_draw, _of_kept, _of_survey
from processors.kernels.choice.masses_triton import _of_mass
from processors.kernels.choice.parts_triton import (
    _of_bin,
    _of_cooled,
    _of_cooled_soon,
    _of_floor,
    _of_logits,
    _of_order,
    patch_arguments,
)
from processors.kernels.choice.tables import CAPACITY, NUM_BINS, OPEN, Control, Level, Mark, powers
from processors.sampler import BLOCK, PLAIN_LIMIT

__all__ = ["EACH", "OPTIONS", "draw_listed_triton", "num_programs"]

EACH = 4  # blocks per iteration: with top-k half of such groups have no candidate and are skipped
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}
_MOST = 512  # programs of a launch in which most rows are already decided

_INF, _INT_MIN = tl.constexpr(float("inf")), tl.constexpr(-(2**63))
_LIMIT, _CAPACITY, _OPEN = tl.constexpr(PLAIN_LIMIT), tl.constexpr(CAPACITY), tl.constexpr(OPEN)
_BLOCK, _EACH, _NUM_BINS = tl.constexpr(BLOCK), tl.constexpr(EACH), tl.constexpr(NUM_BINS)
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT_CUT, _HEAT_DRAW, _MIN_P, _TOP_K, _TOP_P, _IS_K_LATE, _IS_MIN_LATE = (
    tl.constexpr(int(Control[name]))
    for name in ("HEAT_CUT", "HEAT_DRAW", "MIN_P", "TOP_K", "TOP_P", "IS_K_LATE", "IS_MIN_LATE")
)
_PEAK, _PER_UNIT, _UNIT, _RATE = (tl.constexpr(int(one)) for one in Level)
_LEAST, _COUNT, _IS_CUT, _FROM, _MIN_P_LEAST, _TOTAL, _ENDED = (
    tl.constexpr(int(Mark[name]))
    for name in ("LEAST", "COUNT", "IS_CUT", "FROM", "MIN_P_LEAST", "TOTAL", "ENDED")
)
_FIRST_BIN, _LAST_BIN, _IN_BINS, _COLLECTED, _LISTED = (
    tl.constexpr(int(Mark[name])) for name in ("FIRST_BIN", "LAST_BIN", "IN_BINS", "COLLECTED", "LISTED")
)


@triton.jit
def _of_listing(values, ids, is_here, marks, listed):  # type: ignore[no-untyped-def]
    """Append the orders of values where `is_here`. They are few: an atomic counter is cheaper than a scan."""
    counter = marks + _LISTED + tl.zeros_like(ids)
    at = tl.atomic_add(counter, tl.full(ids.shape, 1, tl.int64), mask=is_here, sem="relaxed")
    tl.store(listed + at, _of_order(values, ids), mask=is_here)


@triton.jit  # type: ignore[untyped-decorator]
def _of_blocks(  # type: ignore[no-untyped-def]
    first, row, patch, facts, controls, levels, marks, listed, powers, width, num_blocks,
    IS_WINDOW: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """Append the candidates of EACH blocks to the list, and add the blocks' mass to TOTAL."""
    heat, peak = tl.load(controls + _HEAT_CUT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
    begin = _of_floor(tl.load(marks + _FROM))
    block = first + tl.arange(0, _EACH)
    most = _of_cooled(tl.load(facts + block, mask=block < num_blocks, other=-_INF), peak, heat)
    if IS_WINDOW:
        from_bin, last = tl.load(marks + _FIRST_BIN), tl.load(marks + _LAST_BIN)
        per_unit = tl.load(levels + _PER_UNIT)
        is_wanted = (most >= begin) & (_of_bin(most, peak, heat, per_unit) <= last)
    else:
        p, is_k_late = tl.load(controls + _TOP_P), tl.load(controls + _IS_K_LATE) > 0
        weighs = (p < 1) & (is_k_late | (tl.load(controls + _TOP_K) == 0))
        part = tl.where(tl.load(controls + _IS_MIN_LATE) > 0, _INT_MIN, tl.load(marks + _MIN_P_LEAST))
        part = _of_floor(part)
        is_wanted = most >= tl.where(weighs, tl.minimum(begin, part), begin)
    if tl.max(is_wanted.to(tl.int32), 0) > 0:
        ids = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
        x = _of_logits(row, patch, ids, (ids < width) & is_wanted[:, None], width, HAS_PATCH)
        value = _of_cooled_soon(x, peak, heat, tl.load(levels + _RATE).to(tl.float32))
        is_here = value >= begin
        if IS_WINDOW:
            place = _of_bin(value, peak, heat, per_unit)
            is_here = is_here & (place >= from_bin) & (place <= last)
        else:
            if weighs:
                mass = _of_mass(value, peak, heat, tl.load(levels + _UNIT).to(tl.int32), powers)
                mass = tl.where(value >= part, mass, 0)
                tl.atomic_add(marks + _TOTAL, tl.sum(tl.sum(mass, 1), 0), sem="relaxed")
        number = tl.sum(tl.sum(is_here.to(tl.int32), 1), 0)
        if number > 0:
            before = tl.atomic_add(marks + _COLLECTED, number.to(tl.int64), sem="relaxed")
            if before + number <= _CAPACITY:
                _of_listing(value, ids, is_here, marks, listed)


@triton.jit  # type: ignore[untyped-decorator]
def _of_end(  # type: ignore[no-untyped-def]
    row, patch, facts, controls, levels, marks, listed, powers, seed, position, width, num_blocks,
    BLOCKS: tl.constexpr, IS_WINDOW: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    """The token of a row by its candidate list; OPEN if the candidates exceed CAPACITY."""
    heat, peak = tl.load(controls + _HEAT_CUT).to(tl.float32), tl.load(levels + _PEAK).to(tl.float32)
    unit, draw_heat = tl.load(levels + _UNIT).to(tl.int32), tl.load(controls + _HEAT_DRAW).to(tl.float32)
    number = tl.load(marks + _COLLECTED).to(tl.int32)
    least, count, is_cut = tl.load(marks + _LEAST), tl.load(marks + _COUNT), tl.load(marks + _IS_CUT) > 0
    ids = listed + _CAPACITY
    token = tl.full((), _OPEN, tl.int64)
    if is_cut & (number > _CAPACITY):
        tl.debug_barrier()  # every warp loads the marks before they are overwritten
        tl.store(marks + _COLLECTED, 0)
        place = tl.arange(0, 2 * _NUM_BINS)
        tl.store(ids + place, tl.zeros((2 * _NUM_BINS,), tl.int64))  # zero the histogram of find_window
    else:
        is_listed = True
        if is_cut:
            if IS_WINDOW:
                is_listed = tl.load(marks + _IN_BINS) <= _CAPACITY
                if is_listed:
                    least, count = _of_cut(
                        listed,
                        row,
                        patch,
                        number,
                        controls,
                        marks,
                        peak,
                        heat,
                        unit,
                        powers,
                        False,
                        HAS_PATCH,
                    )
                else:
                    least, count = _of_cut(
                        listed, row, patch, width, controls, marks, peak, heat, unit, powers, True, HAS_PATCH
                    )
                is_listed = is_listed & (tl.load(marks + _FIRST_BIN) == 0)
            else:
                least, count = _of_cut(
                    listed, row, patch, number, controls, marks, peak, heat, unit, powers, False, HAS_PATCH
                )
            tl.store(marks + _LEAST, least)
            tl.store(marks + _COUNT, count)
        tl.debug_barrier()  # ids overwrite the masses
        is_few = count <= _LIMIT
        if is_few & is_listed:
            _of_kept(listed, number, least, ids)
        elif is_few | is_cut | (heat != draw_heat):
            _of_survey(
                row, patch, facts, num_blocks, width, peak, draw_heat, heat, least, is_few, ids, HAS_PATCH
            )
        tl.debug_barrier()
        token = _of_draw(
            row, patch, facts, ids, controls, seed, position, num_blocks, width, peak, least, count, BLOCKS,
            HAS_PATCH,
        )  # fmt: skip
    return token


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, controls, levels, facts, marks, lists, powers, seeds, positions, tokens, width, stride,
    num_blocks, patches, size, BLOCKS: tl.constexpr, IS_WINDOW: tl.constexpr, HAS_PATCH: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    if tl.load(tokens + place) == _OPEN:
        row, patch, facts = logits + place * stride, patches + place * size, facts + place * 4 * num_blocks
        controls, levels = controls + place * _CONTROLS, levels + place * _LEVELS
        marks, listed = marks + place * _MARKS, lists + place * 2 * _CAPACITY
        if IS_WINDOW:
            is_listed = tl.load(marks + _IN_BINS) <= _CAPACITY
        else:
            is_listed = (tl.load(marks + _IS_CUT) > 0) | (tl.load(marks + _COUNT) <= _LIMIT)
        if is_listed:
            step = tl.num_programs(1) * _EACH
            for first in range(tl.program_id(1) * _EACH, num_blocks, step):
                _of_blocks(
                    first, row, patch, facts, controls, levels, marks, listed, powers, width, num_blocks,
                    IS_WINDOW, HAS_PATCH,
                )  # fmt: skip
        tl.debug_barrier()  # every thread stores before the counter is raised
        if tl.atomic_add(marks + _ENDED, 1) == tl.num_programs(1) - 1:
            tl.store(marks + _ENDED, 0)
            tl.store(marks + _LISTED, 0)
            seed, position = tl.load(seeds + place), tl.load(positions + place)
            token = _of_end(
                row, patch, facts, controls, levels, marks, listed, powers, seed, position, width, num_blocks,
                BLOCKS, IS_WINDOW, HAS_PATCH,
            )  # fmt: skip
            tl.store(tokens + place, token)


def num_programs(rows: int, blocks: int, each: int) -> int:
    """Return the programs per row of a launch in which most rows are decided: few, as idle ones cost time."""
    return min(-(-blocks // each), max(8, _MOST // rows))


def draw_listed_triton(
    logits: Tensor,
    controls: Tensor,
    levels: Tensor,
    facts: Tensor,
    marks: Tensor,
    lists: Tensor,
    seeds: Tensor,
    positions: Tensor,
    tokens: Tensor,
    is_window: bool,
    patches: Tensor | None = None,
) -> None:
    """As draw_listed_torch."""
    (rows, width), blocks = logits.shape, facts.shape[2]
    programs = num_programs(rows, blocks, EACH) if is_window else triton.cdiv(blocks, EACH)
    sizes = {"BLOCKS": max(16, triton.next_power_of_2(blocks)), "IS_WINDOW": is_window}
    _kernel[(rows, programs)](
        logits, controls, levels, facts, marks, lists, powers(logits.device), seeds, positions, tokens, width,
        logits.stride(0), blocks, **patch_arguments(logits, patches), **sizes, **OPTIONS,
    )  # fmt: skip
