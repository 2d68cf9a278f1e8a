"""Operations with a plain PyTorch implementation and a Triton kernel for CUDA: bit masks, row sums whose
bits do not depend on the number of rows, softmax; and, on a CPU, the search for the few finite or large
logits of a row by the maxima of blocks of ids.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor

_library: Any = torch.library.Library("gencli", "DEF")  # type: ignore[no-untyped-call]


def operation(schema: str, plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the operation `gencli::<name>` of a schema such as `scale(Tensor(a!) x, float by) -> ()`.

    `plain` is its reference in PyTorch (the twin), used on a CPU and where Triton cannot run. `kernel` names
    the function that launches one Triton kernel, as `module:function`; it is imported at the first call on
    CUDA. The schema marks arguments that are changed in place; a result never aliases an argument. In a CUDA
    graph an operation counts as one launch.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, plain, "CPU")
    _library.impl(name, _on_cuda(plain, kernel), "CUDA")
    overload: Callable[..., Any] = getattr(torch.ops.gencli, name).default
    return overload


@cache
def why_no_kernels() -> str:
    """Return why Triton cannot launch kernels on the GPUs of this machine; "" if it can. Warns once.

    Triton compiles a part of itself at its first use, and needs a C compiler, the headers of Python and a
    cache folder for that.
    """
    reason = ""
    if torch.version.hip is not None:
        return "they are for GPUs of NVIDIA"
    if find_spec("triton") is None:
        reason = "the package triton is not installed"
    else:
        try:
            _ = import_module("triton.runtime.driver").driver.active
        except Exception as error:  # of any type
            reason = f"Triton does not start: {str(error).partition(chr(10))[0] or type(error).__name__}"
    if reason:
        warnings.warn(
            f"The kernels for this GPU are not used, as {reason}. Each step takes longer. "
            "Triton needs a C compiler, the headers of Python and a TRITON_CACHE_DIR that can be written to.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason


def _on_cuda(plain: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    """Return the implementation for CUDA: the kernel on the device of its tensors, or `plain`."""
    launch: Callable[..., Any] | None = None

    def run(*arguments: Any) -> Any:
        nonlocal launch
        if launch is None:
            module, _, function = kernel.partition(":")
            launch = plain if why_no_kernels() else getattr(import_module(module), function)
        device = next(tensor.device for tensor in arguments if isinstance(tensor, Tensor))
        if device.index == torch.cuda.current_device():
            return launch(*arguments)
        with torch.cuda.device(device):  # Triton launches on the current device
            return launch(*arguments)

    return run


_FEW = 4096  # least capacity: more than most steps need
_kept: dict[tuple[torch.device, int], Tensor] = {}  # by device and stream: launches of one are ordered


def counters(size: int, device: torch.device) -> Tensor:
    """Return at least `size` int32 counters, which are 0 between the launches of the current stream."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A graph gets its own counters: their zeroing is captured, so it happens at replay, not now.
        return torch.zeros(size, dtype=torch.int32, device=device)
    key = device, torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    counts = _kept.get(key)
    if counts is None or len(counts) < size:
        room = max(_FEW, 1 << (size - 1).bit_length())
        counts = _kept[key] = torch.zeros(room, dtype=torch.int32, device=device)
    return counts


def apply_bitmask(logits: Tensor, masks: Tensor) -> Tensor:
    """Set logits [R, V] to -inf in place where the bit in masks [R, ceil(V / 32)] int32 is 0."""
    (_apply_bitmask_on_gpu if logits.is_cuda else apply_bitmask_torch)(logits, masks)
    return logits


def apply_bitmask_torch(logits: Tensor, masks: Tensor) -> None:
    """As apply_bitmask. A table expands each octet of a mask to eight bools."""
    octets = masks.view(torch.uint8).flatten().to(torch.int32)
    blocked = blocked_bits(logits.device).index_select(0, octets).view(torch.bool)
    blocked = blocked.view(len(masks), 32 * masks.shape[1])
    logits.masked_fill_(blocked[:, : logits.shape[1]], -torch.inf)


@functools.cache
def blocked_bits(device: torch.device) -> Tensor:
    """Return a table [256] int64: entry o packs eight bools, True where the bit of octet o is 0."""
    bits = (torch.arange(256)[:, None] >> torch.arange(8)) & 1
    return (bits == 0).view(torch.int64).flatten().to(device, non_blocking=True)


_apply_bitmask_on_gpu = operation(
    "apply_bitmask(Tensor(a!) logits, Tensor masks) -> ()",
    apply_bitmask_torch,
    "processors.kernels.bitmask_triton:apply_bitmask_triton",
)


def row_sums(values: Tensor) -> Tensor:
    """Return the sum [R, 1] of each row of values [R, N]."""
    return cast(Tensor, _sums(values)) if values.is_cuda else values.sum(1, keepdim=True)


def row_cumsums(values: Tensor) -> Tensor:
    """Return the inclusive prefix sums [R, N] of each row of values [R, N]."""
    return cast(Tensor, _cumsums(values)) if values.is_cuda else values.cumsum(1)


def row_logsumexps(values: Tensor) -> Tensor:
    """Return the log-sum-exp [R, 1] of each row of values [R, N]."""
    if not values.is_cuda:
        return values.logsumexp(1, keepdim=True)
    peak = values.amax(1, keepdim=True)
    peak = torch.where(peak.isinf(), 0, peak)
    return row_sums((values - peak).exp()).log() + peak


_sums = operation(
    "row_sums(Tensor values) -> Tensor",
    lambda values: values.sum(1, keepdim=True),
    "processors.kernels.sums_triton:row_sums_triton",
)
_cumsums = operation(
    "row_cumsums(Tensor values) -> Tensor",
    lambda values: values.cumsum(1),
    "processors.kernels.sums_triton:row_cumsums_triton",
)


def softmax_parts(logits: Tensor, at: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice of rows, softmax) for parts of logits [R, V], or of its rows `at` [N].

    On a CPU each part overwrites the one before, as allocating memory takes longer than the softmax. For a
    negative index in `at` the result is that of an arbitrary row.
    """
    parts = row_parts(logits, None if at is None else len(at))
    if len(parts) == 1:
        yield parts[0], (logits if at is None else logits[at]).softmax(dim=-1)
        return
    buffer = logits.new_empty(parts[0].stop, logits.shape[1])
    for part in parts:
        out = buffer[: part.stop - part.start]
        if at is None:
            torch.softmax(logits[part], dim=-1, out=out)
        elif torch.get_num_threads() > 1:
            torch.softmax(logits[at[part]], dim=-1, out=out)
        else:  # row by row, without the copy of logits[at[part]]
            for index, row in enumerate(at[part].tolist()):
                torch.softmax(logits[row, None], dim=-1, out=out[index, None])
        yield part, out


def token_probability(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    """Return softmax(logits)[at[n], ids[n]] [N] float32, and 1 where at[n] is -1.

    logits [R, V] float32, ids and at [N] int64; without `at` row n is used for ids[n].
    """
    result: Tensor = (_token_probability_on_gpu if logits.is_cuda else token_probability_torch)(
        logits, ids, at
    )
    return result


def token_probability_torch(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    if at is None:
        return _gathered(logits, ids, None)
    result = torch.ones(len(ids), dtype=logits.dtype, device=logits.device)
    named = (at >= 0).nonzero().squeeze(1)
    result[named] = _gathered(logits, ids[named], at[named])
    return result


def _gathered(logits: Tensor, ids: Tensor, at: Tensor | None) -> Tensor:
    parts = [softmax.gather(1, ids[part, None]) for part, softmax in softmax_parts(logits, at)]
    return torch.cat(parts).squeeze(1)


_token_probability_on_gpu = operation(
    "token_probability(Tensor logits, Tensor ids, Tensor? at) -> Tensor",
    token_probability_torch,
    "processors.kernels.token_probability_triton:token_probability_triton",
)


_BLOCK = 32  # ids per block; maxima of smaller blocks cost more than they save
_DENSE = 4  # if more than one block in 4 is relevant, all ids are compared
_SMALL = 1 << 16  # total logits up to which all ids are compared
_WIDE = 512  # ids per requested value from which best_values searches by blocks


def few_finite(logits: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a mask [R] of rows with at most `limit` finite logits [R, V], and row and id [N] of these.

    The first 2 * limit ids are checked first, as most rows with more finite logits exceed it there. A NaN
    hides the other finite logits of its block.
    """
    few = has_more_finite(logits, limit).logical_not_()
    at = few.nonzero().squeeze(1)
    if not len(at):
        return few, at, at
    some = logits if len(at) == len(logits) else logits[at]
    places = _finite_places(some)
    if places is None:
        few[at] = _num_finite(some) <= limit
        at = few.nonzero().squeeze(1)
        row, ids = _places(logits[at] > -math.inf)
        return few, at[row], ids
    row, ids = places
    few[at] = row.bincount(minlength=len(at)) <= limit
    if bool(few.all()):
        return few, row, ids
    row = at[row]
    return few, row[few[row]], ids[few[row]]


def has_more_finite(logits: Tensor, limit: int) -> Tensor:
    """Return a mask [R] of rows with more than `limit` finite logits [R, V] in the first 2 * limit ids."""
    return _num_finite(logits[:, : 2 * limit]) > limit


def best_values(logits: Tensor, count: int) -> Tensor:
    """Return the largest values of each row of logits [R, V], descending [R, count]; NaN is the largest."""
    if logits.device.type != "cpu":
        return _sorted_end_torch(logits, count)
    if _is_small(logits) or count * _WIDE > logits.shape[1]:
        # NumPy sorts 152k numbers in a thirtieth of PyTorch's time.
        ends = []
        for part in row_parts(logits):
            try:
                some, first = logits[part].numpy().copy(), logits.shape[1] - count
            except RuntimeError:  # PyTorch built without NumPy
                return _sorted_end_torch(logits, count)
            if first:
                some.partition(first, axis=1)
            some = some[:, first:]
            some.sort(axis=1)
            ends.append(torch.from_numpy(some[:, ::-1].copy()))
        return torch.cat(ends)
    return largest(logits.contiguous(), count)[0]


def _sorted_end_torch(logits: Tensor, count: int) -> Tensor:
    if count < logits.shape[1]:
        return logits.topk(count, dim=1).values
    return logits.sort(dim=1, descending=True).values


def drop_below(logits: Tensor, threshold: Tensor, room: Tensor | None = None) -> Tensor:
    """Mask in place logits [R, V] below the threshold [R, 1], and ties after the first `room` [R, 1].

    Without `room` all ties are kept. NaN is kept, so that it is detected later.
    """
    if logits.is_cuda or _is_small(logits):
        return logits.masked_fill_(_is_out(logits, threshold, room), -math.inf)
    blocks, tail = _blocks(logits)
    row, block = _places(~(blocks.amax(dim=-1) < threshold))
    if _is_dense(row, blocks):
        room = None if room is None or _has_room(logits, threshold, room) else room
        return logits.masked_fill_(_is_out(logits, threshold, room), -math.inf)
    kept = blocks[row, block]
    out = kept < threshold[row]
    out_of_tail = tail < threshold
    if room is not None:
        tied = kept == threshold[row]
        counts = tied.sum(dim=1)
        in_row = counts.new_zeros(len(logits)).index_add_(0, row, counts)
        # Ties before a block within its row: the running sum minus that of preceding rows.
        before = counts.cumsum(0) - counts - (in_row.cumsum(0) - in_row)[row]
        out |= is_surplus(tied, room[row] - before[:, None])
        out_of_tail |= is_surplus(tail == threshold, room - in_row[:, None])
    blocks.fill_(-math.inf)
    blocks[row, block] = kept.masked_fill_(out, -math.inf)
    tail.masked_fill_(out_of_tail, -math.inf)
    return logits


def drop_above(logits: Tensor, ceiling: Tensor, room: Tensor) -> Tensor:
    """Mask in place logits [R, V] above the ceiling [R, 1], and ties after the first `room` [R, 1]."""
    out = logits > ceiling
    if logits.is_cuda or not _has_room(logits, ceiling, room):
        out |= is_surplus(logits == ceiling, room)
    return logits.masked_fill_(out, -math.inf)


def stable_order(values: Tensor) -> Tensor:
    """Return the indices [R, N] that sort each row of values [R, N] ascending, stably.

    A CPU sorts by NumPy, which merges a few sorted runs in a fraction of PyTorch's time.
    """
    if values.device.type == "cpu":
        try:
            return torch.from_numpy(values.numpy().argsort(axis=1, kind="stable"))
        except RuntimeError:  # PyTorch built without NumPy
            pass
    return values.argsort(dim=1, stable=True)


def _finite_places(logits: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return rows and ids [N] of finite logits, unordered; None if too many blocks have one."""
    if _is_small(logits):
        return _places(logits > -math.inf)
    blocks, tail = _blocks(logits)
    row, block = _places(blocks.amax(dim=-1) > -math.inf)
    if _is_dense(row, blocks):
        return None
    at, inside = _places(blocks[row, block] > -math.inf)
    last_row, last = _places(tail > -math.inf)
    ids = torch.cat([block[at] * _BLOCK + inside, last + logits.shape[1] - tail.shape[1]])
    return torch.cat([row[at], last_row]), ids


def _num_finite(logits: Tensor) -> Tensor:
    return _count(torch.gt, logits, logits.new_full((len(logits), 1), -math.inf))


def _count(compare: Callable[..., Tensor], logits: Tensor, value: Tensor) -> Tensor:
    """Count per row the logits that compare true with value [R, 1]. A bool sum takes four times as long."""
    pairs = ((logits[part], value[part]) for part in row_parts(logits))
    return torch.cat([compare(some, limit, out=torch.empty_like(some)).sum(1) for some, limit in pairs])


def _is_out(logits: Tensor, threshold: Tensor, room: Tensor | None) -> Tensor:
    out = logits < threshold
    return out if room is None else out | is_surplus(logits == threshold, room)


def _has_room(logits: Tensor, threshold: Tensor, room: Tensor) -> bool:
    return bool((_count(torch.eq, logits, threshold) <= room.squeeze(1)).all())


def is_surplus(tied: Tensor, room: Tensor) -> Tensor:
    """Return `tied` [R, V] bool without the first `room` [R, 1] ties of each row."""
    return tied & (tied.cumsum(1, dtype=torch.int32) > room)


def _is_small(logits: Tensor) -> bool:
    return logits.numel() <= _SMALL


def _blocks(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return views of the whole blocks [R, V // BLOCK, BLOCK] and of the remaining ids [R, V % BLOCK]."""
    whole = logits.shape[1] // _BLOCK * _BLOCK
    return logits[:, :whole].view(len(logits), -1, _BLOCK), logits[:, whole:]


def _is_dense(row: Tensor, blocks: Tensor) -> bool:
    return len(row) * _DENSE > blocks.shape[0] * blocks.shape[1]


def _places(flags: Tensor) -> tuple[Tensor, Tensor]:
    row, column = flags.nonzero(as_tuple=True)
    return row, column


CACHED = 1 << 19  # logits that fit a CPU's cache together with the results


def row_parts(logits: Tensor, count: int | None = None) -> list[slice]:
    """Return slices of the rows of logits [R, V], or of `count` rows, that fit the cache; one slice on a GPU.

    A part has at least one row per thread.
    """
    count, width = len(logits) if count is None else count, logits.shape[1]
    if logits.is_cuda or count * width <= CACHED:
        return [slice(0, count)]
    together = max(torch.get_num_threads(), CACHED // width)
    return [slice(start, min(start + together, count)) for start in range(0, count, together)]


_MAXIMUM_BLOCK = 64  # ids per block whose maximum is taken
_NARROW = 4  # rows up to this many times the ids in the chosen blocks use topk over all ids


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest logits [R, V] of each row, descending, and their ids, [R, count] each.

    Which of equal values are returned, and their order, is not determined. NaN is the largest. Only the
    `count` blocks with the largest maxima are searched: they contain the `count` largest values. Requires
    contiguous rows and count <= V.
    """
    rows, width = logits.shape
    if count * _MAXIMUM_BLOCK * _NARROW > width:
        values, ids = logits.topk(count, dim=1)
        return values, ids
    whole = width // _MAXIMUM_BLOCK
    maxima = logits[:, : whole * _MAXIMUM_BLOCK].view(rows, whole, _MAXIMUM_BLOCK).amax(-1)
    num_last = width - whole * _MAXIMUM_BLOCK
    if num_last:
        maxima = torch.cat([maxima, logits[:, -num_last:].amax(1, keepdim=True)], dim=1)
    blocks = maxima.topk(count, dim=1, sorted=False).indices
    starts = blocks * _MAXIMUM_BLOCK
    if num_last:  # the partial last block is read from V - BLOCK on, so it overlaps the block before
        starts.clamp_(max=width - _MAXIMUM_BLOCK)
    first = torch.arange(0, rows * width, width)[:, None]
    windows = logits.view(-1).unfold(0, _MAXIMUM_BLOCK, 1)  # [R * V - 63, 64], a view
    searched = windows.index_select(0, (starts + first).view(-1)).view(rows, count, _MAXIMUM_BLOCK)
    if num_last:
        is_twice = (blocks == whole)[:, :, None] & (torch.arange(_MAXIMUM_BLOCK) < _MAXIMUM_BLOCK - num_last)
        searched.masked_fill_(is_twice, -math.inf)
    values, at = searched.view(rows, -1).topk(count, dim=1)
    return values, starts.gather(1, at // _MAXIMUM_BLOCK).add_(at % _MAXIMUM_BLOCK)


def total_mass(logits: Tensor, peak: Tensor, scale: Tensor) -> Tensor:
    """Return the sum of 2 ** ((logits - peak) * scale) over each row [R, 1] float32.

    logits [R, V], peak and scale [R, 1], all float32. The relative error is at most 1e-5.
    """
    return torch.cat([some.sum(1, keepdim=True) for _, some in _masses(logits, peak, scale)])


def block_masses(logits: Tensor, peak: Tensor, scale: Tensor, size: int) -> Tensor:
    """As `total_mass` over each block of `size` ids, [R, ceil(V / size)]; accurate for sums >= 2 ** -60."""
    width = logits.shape[1]
    whole = width // size * size
    sums = logits.new_empty(len(logits), -(-width // size))
    for part, some in _masses(logits, peak, scale):
        torch.sum(some[:, :whole].view(len(some), -1, size), dim=-1, out=sums[part, : whole // size])
        if whole < width:
            torch.sum(some[:, whole:], dim=-1, out=sums[part, -1])
    return sums


def _masses(logits: Tensor, peak: Tensor, scale: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield (slice of rows, 2 ** ((logits - peak) * scale)); each part overwrites the one before."""
    parts = row_parts(logits)
    if len(parts) == 1:
        yield parts[0], (logits - peak).mul_(scale).exp2_()
        return
    buffer = logits.new_empty(parts[0].stop, logits.shape[1])
    for part in parts:
        some = torch.sub(logits[part], peak[part], out=buffer[: part.stop - part.start])
        yield part, some.mul_(scale[part]).exp2_()


_SPARSE = 8  # if fewer than one logit in 8 is finite, only the finite ones are sorted
_LOW = (1 << 32) - 1


def ranked(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and ids [R, N] of logits [R, V] float32, in descending order, ties by ascending id.

    The N columns hold all finite logits of a row. The rest of the row is -inf with ids of masked logits, in
    which an id may occur several times.
    """
    if logits.device.type != "cpu":
        return _all_torch(logits)
    is_finite = logits > -math.inf
    count = torch.count_nonzero(is_finite, dim=1)
    num_columns = max(1, int(count.max())) if len(count) else 1
    if num_columns * _SPARSE < logits.shape[1]:
        return _few(logits, is_finite, count, num_columns)
    # One int64 key (value, id) for each logit: NumPy sorts integers in a tenth of the time that PyTorch takes
    # for values with their ids.
    bits = (logits + 0.0).view(torch.int32)  # -0 becomes 0
    ascending = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # integers that sort as the floats do
    keys = ((~ascending).long() << 32) | torch.arange(logits.shape[1])
    try:
        keys.numpy().sort(axis=1)
    except RuntimeError:  # PyTorch built without NumPy
        return _all_torch(logits)
    ids = keys & _LOW
    return logits.gather(1, ids), ids


def _all_torch(logits: Tensor) -> tuple[Tensor, Tensor]:
    values, ids = logits.sort(dim=1, descending=True, stable=True)
    return values, ids


def _few(logits: Tensor, is_finite: Tensor, count: Tensor, num_columns: int) -> tuple[Tensor, Tensor]:
    row, id_ = is_finite.nonzero(as_tuple=True)
    column = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
    ids = logits.argmin(1, keepdim=True).expand(-1, num_columns).clone()  # a masked one
    values = torch.full((len(logits), num_columns), -math.inf)
    ids[row, column], values[row, column] = id_, logits[row, id_]
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)
