"""A log-sum-exp of rows in two kernels, as the yardstick of others: what reading all logits takes."""

import triton
import triton.language as tl

__all__ = ["OPTIONS"]

OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}
_PART = tl.constexpr(4096)


@triton.jit
def _parts(logits, parts, width, stride):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    ids = part * _PART + tl.arange(0, _PART)
    x = tl.load(logits + row * stride + ids, mask=ids < width, other=-float("inf"))
    top = tl.max(x, 0)
    at = parts + (row * tl.num_programs(1) + part) * 2
    tl.store(at, top)
    tl.store(at + 1, tl.sum(tl.exp(x - top), 0))


@triton.jit
def _join(parts, found, count, PARTS: tl.constexpr):
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, PARTS)
    at, is_inside = parts + (row * count + place) * 2, place < count
    top = tl.load(at, mask=is_inside, other=-float("inf"))
    mass = tl.load(at + 1, mask=is_inside, other=0.0)
    most = tl.max(top, 0)
    tl.store(found + row, most + tl.log(tl.sum(mass * tl.exp(top - most), 0)))
