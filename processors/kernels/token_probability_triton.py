"""The kernel of token_probability: softmax(logits [R, V]) at one id per row, in one pass (online softmax).

Grid (N,), one program a row. Sums are float32 in a fixed order, so a row's bits do not depend on the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["BLOCK", "OPTIONS", "token_probability_triton"]

BLOCK = 4096  # logits per iteration
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}  # fixed, as the defaults of Triton differ by release


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(logits, ids, at, found, width, stride, HAS_AT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0)
    row = place.to(tl.int64)
    if HAS_AT:
        row = tl.load(at + place)
    if row < 0:
        tl.store(found + place, 1.0)
        return
    base = logits + row * stride
    # Online softmax per lane: the largest logit and the sum of exp(logit - largest). -1e38 instead of -inf,
    # to avoid -inf - -inf.
    top = tl.full((BLOCK,), -1e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        places = start + tl.arange(0, BLOCK)
        value = tl.load(base + places, mask=places < width, other=-float("inf"))
        larger = tl.maximum(top, value)
        total = total * tl.exp(top - larger) + tl.exp(value - larger)
        top = larger
    most = tl.max(top, axis=0)
    mass = tl.sum(total * tl.exp(top - most), axis=0)
    tl.store(found + place, tl.exp(tl.load(base + tl.load(ids + place)) - most) / mass)


def token_probability_triton(logits: Tensor, ids: Tensor, at: Tensor | None = None) -> Tensor:
    """As token_probability_torch. Logits need contiguous rows and the device of the ids."""
    found = torch.empty(len(ids), dtype=torch.float32, device=logits.device)
    if len(ids):
        has_at, rows = at is not None, ids if at is None else at
        _kernel[(len(ids),)](
            logits, ids, rows, found, logits.shape[1], logits.stride(0), HAS_AT=has_at, BLOCK=BLOCK, **OPTIONS
        )
    return found
