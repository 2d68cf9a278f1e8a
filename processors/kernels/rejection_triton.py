"""The kernel of rejection sampling: verify the drafts of all requests and draw replacements in one launch.

Inputs are logits [R, V] of the target and q's logits [M, V] of sampled drafts; outputs are the accepted count
and the replacement token of each request, [Q] each. Programs take tasks by a ticket (an atomic counter):
first the drafts of all requests, draft by draft, each row in slices of SLICE ids; then for each request the
slices of the row whose draft is replaced. The program that finishes a row's last slice decides on the draft;
the one that finishes a request's last slice draws the replacement. A task waits only for tasks with lower
tickets, which running programs hold, so the launch cannot deadlock however few programs run at once.

Sums are added in the order of the ids, so the result does not depend on which program finishes first. The
uniform numbers have the bits of the twin (rejection_torch); sums may differ in their last bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.parts_triton import _of_gumbel, _of_mix, _of_row_key, _of_uniform
from processors.kernels.operations import counters
from processors.rng import GAMMA, Stream, signed
from processors.sampler import BLOCK

__all__ = ["OPTIONS", "SLICE", "TILE", "rejection_triton"]

SLICE = 8192  # ids per task
TILE = 2048  # ids per iteration of the residual, which reads two rows
# Fixed, as the defaults of Triton differ by release. With 80 registers six programs share a multiprocessor.
OPTIONS = {"num_warps": 4, "maxnreg": 80, "enable_fp_fusion": False}

_TOKEN, _BLOCK, _ACCEPT, _RESIDUAL = (
    tl.constexpr(signed(stream * GAMMA))
    for stream in (Stream.TOKEN, Stream.BLOCK, Stream.ACCEPT, Stream.RESIDUAL)
)
_STANDS, _REPLACED, _BROKEN = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)  # verdicts; 0: undecided


@triton.jit
def _of_shares(row, ids, width, total):  # type: ignore[no-untyped-def]
    # Probabilities exp(logit - total); the float64 log-sum-exp is split into two float32.
    first = total.to(tl.float32)
    rest = tl.exp((first.to(tl.float64) - total).to(tl.float32))
    return tl.exp(tl.load(row + ids, mask=ids < width, other=-float("inf")) - first) * rest


@triton.jit
def _of_residual(target, source, ids, width, drafted, total, source_total, is_drawn):  # type: ignore[no-untyped-def]
    # p and the unnormalised residual: max(0, p - q), or p without the draft if q(draft) = 1.
    p = _of_shares(target, ids, width, total)
    if is_drawn:
        left = tl.maximum(p - _of_shares(source, ids, width, source_total), 0.0)
    else:
        left = tl.where(ids == drafted, 0.0, p)
    return p, left


@triton.jit  # type: ignore[untyped-decorator]
def _of_slice(logits, first, width, top, mass, SLICE: tl.constexpr):  # type: ignore[no-untyped-def]
    # Store the maximum of a slice, and the sum of exp(logit - maximum).
    ids = first + tl.arange(0, SLICE)
    value = tl.load(logits + ids, mask=ids < width, other=-float("inf"))
    most = tl.max(value, axis=0)
    tl.store(top, most)
    tl.store(mass, tl.sum(tl.exp(value - tl.where(most == -float("inf"), 0.0, most)), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _of_verdict(logits, drafted, tops, masses, q, u, slices, SLICES: tl.constexpr):  # type: ignore[no-untyped-def]
    # Verdict on a draft (accepted if u * q < p), and the log-sum-exp of its row, float64, from its slices.
    place = tl.arange(0, SLICES)
    top = tl.load(tops + place, mask=place < slices, other=-float("inf")).to(tl.float64)
    mass = tl.load(masses + place, mask=place < slices, other=0.0).to(tl.float64)
    most = tl.max(top, axis=0)
    most = tl.where(most == -float("inf"), 0.0, most)
    mass = tl.sum(mass * tl.exp(top - most), axis=0)
    p = tl.exp(tl.load(logits + drafted).to(tl.float64) - most) / mass
    return tl.where(u * q < p, _STANDS, tl.where(p < 1.0, _REPLACED, _BROKEN)), most + tl.log(mass)


@triton.jit
def _of_best(weights, key, ids, is_inside):  # type: ignore[no-untyped-def]
    # Gumbel-max by weights: argmax of log(weight) + noise; the lowest index wins a tie.
    score = tl.log(weights.to(tl.float64)) + _of_gumbel(key, ids)
    return tl.argmax(tl.where(is_inside, score, -float("inf")), axis=0)


@triton.jit  # type: ignore[untyped-decorator]
def _of_replacement(  # type: ignore[no-untyped-def]
    target, source, blocks, num_blocks, seed, position, width, drafted, total, source_total, is_drawn,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    # Two-level draw from the residual, as draw_by_weight; from p if the residual is 0 everywhere.
    key = _of_row_key(seed, position, _RESIDUAL)
    place = tl.arange(0, BLOCKS)
    left = tl.load(blocks + place, mask=place < num_blocks, other=0.0)
    is_empty = tl.sum(left, axis=0) == 0.0
    whole = tl.load(blocks + num_blocks + place, mask=place < num_blocks, other=0.0)
    left = tl.where(is_empty, whole, left)
    block = _of_best(left, _of_row_key(key, position, _BLOCK), place, place < num_blocks)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    p, rest = _of_residual(target, source, ids, width, drafted, total, source_total, is_drawn)
    rest = tl.where(is_empty, p, rest)
    return block * BLOCK + _of_best(rest, _of_row_key(key, position, _TOKEN), ids, ids < width)


# Values and addresses that change from step to step; specialising on them would only recompile.
_VARIED = ["drafts_stride", "positions_stride", "num_rows", "num_requests", "most_drafts", "num_counters"]
_ANYWHERE = ["seeds", "positions", "drafts", "masses", "accepted", "replacement"]


@triton.jit(do_not_specialize=_VARIED, do_not_specialize_on_alignment=_ANYWHERE)  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, seeds, positions, starts, num_drafts, drafts, q_row, proposal, chances,
    tops, masses, totals, blocks, counters, accepted, replacement,
    width, logits_stride, proposal_stride, drafts_stride, positions_stride,
    num_rows, num_requests, most_drafts, slices, num_counters,
    BLOCK: tl.constexpr, TILE: tl.constexpr, SLICE: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    # Counters: tickets, finished programs, stopped [Q], finished slices of the residual [Q] and of rows [R],
    # verdicts [R]. All are 0 before and after. `stopped` is most_drafts minus the index of the first rejected
    # draft so far: later drafts are skipped, earlier ones may still be decided.
    stopped = counters + 2
    ended_rest, ended = stopped + num_requests, stopped + 2 * num_requests
    verdicts = ended + num_rows
    num_tasks = (most_drafts + 1) * num_requests * slices
    task = tl.atomic_add(counters, 1, sem="relaxed")
    turn, piece = task // (num_requests * slices), task % slices
    request = task // slices % num_requests
    start = tl.load(starts + request)
    size = tl.load(num_drafts + request)
    if turn < most_drafts:
        # An atomic read: with a plain load each warp could see another value.
        stop = tl.atomic_add(stopped + request, 0, sem="relaxed")
        if turn < size and stop <= most_drafts - turn:
            row = start + turn
            at = row * slices
            target = logits + row * logits_stride
            _of_slice(target, piece * SLICE, width, tops + at + piece, masses + at + piece, SLICE)
            tl.debug_barrier()  # every thread stores before the counter is raised
            if tl.atomic_add(ended + row, 1) == slices - 1:
                drafted = tl.load(drafts + request * drafts_stride + turn)
                source = tl.load(q_row + row)
                q = tl.load(chances + source, mask=source >= 0, other=1.0).to(tl.float64)
                position = tl.load(positions + row * positions_stride)
                bits = _of_mix(_of_row_key(tl.load(seeds + row), position, _ACCEPT))  # u of id 0
                u = _of_uniform(bits)
                verdict, total = _of_verdict(target, drafted, tops + at, masses + at, q, u, slices, SLICES)
                tl.store(totals + row, total)
                if verdict != _STANDS:
                    tl.atomic_max(stopped + request, most_drafts - turn, sem="relaxed")
                tl.debug_barrier()
                tl.atomic_xchg(verdicts + row, verdict)
    else:
        count = tl.zeros((), tl.int64)
        verdict = tl.full((), _STANDS, tl.int32)
        while count < size and verdict == _STANDS:
            verdict = tl.atomic_add(verdicts + start + count, 0)
            while verdict == 0:
                verdict = tl.atomic_add(verdicts + start + count, 0)
            if verdict == _STANDS:
                count += 1
        if piece == 0:
            tl.store(accepted + request, count)
            if verdict != _REPLACED:
                tl.store(replacement + request, -1)
        if verdict == _REPLACED:
            row = start + count
            target, total = logits + row * logits_stride, tl.load(totals + row)
            drafted = tl.load(drafts + request * drafts_stride + count)
            place = tl.load(q_row + row)
            is_drawn = place >= 0
            source = proposal + tl.maximum(place, 0) * proposal_stride
            # The log-sum-exp of q is logit(draft) - log q(draft). If q(draft) = 0, the residual is p.
            chance = tl.load(chances + place, mask=is_drawn, other=0.0).to(tl.float64)
            logit = tl.load(source + drafted, mask=is_drawn, other=0.0).to(tl.float64)
            source_total = tl.where(chance > 0, logit - tl.log(chance), float("inf"))
            num_blocks = slices * (SLICE // BLOCK)
            at = blocks + request * 2 * num_blocks
            for first in range(piece * SLICE, (piece + 1) * SLICE, TILE):
                ids = first + tl.reshape(tl.arange(0, TILE), (TILE // BLOCK, BLOCK))
                p, rest = _of_residual(target, source, ids, width, drafted, total, source_total, is_drawn)
                block = first // BLOCK + tl.arange(0, TILE // BLOCK)
                tl.store(at + block, tl.sum(rest, axis=1))
                tl.store(at + num_blocks + block, tl.sum(p, axis=1))
            tl.debug_barrier()
            if tl.atomic_add(ended_rest + request, 1) == slices - 1:
                seed, position = tl.load(seeds + row), tl.load(positions + row * positions_stride)
                token = _of_replacement(
                    target, source, at, num_blocks, seed, position,
                    width, drafted, total, source_total, is_drawn, BLOCK, SLICES * (SLICE // BLOCK),
                )  # fmt: skip
                tl.store(replacement + request, token)
    tl.debug_barrier()
    if tl.atomic_add(counters + 1, 1) == num_tasks - 1:
        for first in range(0, num_counters, SLICE):
            place = first + tl.arange(0, SLICE)
            tl.store(counters + place, 0, mask=place < num_counters)


def rejection_triton(
    logits: Tensor,
    seeds: Tensor,
    positions: Tensor,
    starts: Tensor,
    num_drafts: Tensor,
    drafts: Tensor,
    q_row: Tensor,
    proposal: Tensor | None = None,
    chances: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As rejection_torch; a proposal needs `chances` [M], its q(draft). All tensors have contiguous rows."""
    (num_rows, width), (num_requests, most_drafts), device = logits.shape, drafts.shape, logits.device
    if proposal is None or chances is None:
        proposal = chances = logits  # unused pointers: every q_row is -1
    slices = triton.cdiv(width, SLICE)
    parts = torch.empty(2, num_rows, slices, dtype=torch.float32, device=device)
    totals = torch.empty(num_rows, dtype=torch.float64, device=device)
    blocks = torch.empty(num_requests, 2, slices * (SLICE // BLOCK), dtype=torch.float32, device=device)
    accepted, replacement = torch.empty(2, num_requests, dtype=torch.int64, device=device)
    num_counters = 2 + 2 * (num_requests + num_rows)
    _kernel[((most_drafts + 1) * num_requests * slices,)](
        logits, seeds, positions, starts, num_drafts, drafts, q_row, proposal, chances,
        parts[0], parts[1], totals, blocks, counters(num_counters, device), accepted, replacement,
        width, logits.stride(0), proposal.stride(0), drafts.stride(0), positions.stride(0),
        num_rows, num_requests, most_drafts, slices, num_counters,
        BLOCK=BLOCK, TILE=TILE, SLICE=SLICE, SLICES=triton.next_power_of_2(slices), **OPTIONS,
    )  # fmt: skip
    return accepted, replacement
