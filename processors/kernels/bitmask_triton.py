"""The kernel of apply_bitmask: grid (R, ceil(V / BLOCK)), one program for BLOCK ids of a row.

It stores -inf at blocked ids and reads no logits. The result is exact, so it equals the twin's.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["BLOCK", "OPTIONS", "apply_bitmask_triton"]

BLOCK = 4096  # logits per program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}  # fixed, as the defaults of Triton differ by release


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(logits, masks, width, logits_stride, masks_stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    ids = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_inside = ids < width
    word = tl.load(masks + row * masks_stride + ids // 32, mask=is_inside, other=-1)
    is_blocked = ((word >> (ids % 32)) & 1) == 0
    tl.store(logits + row * logits_stride + ids, -float("inf"), mask=is_inside & is_blocked)


def apply_bitmask_triton(logits: Tensor, masks: Tensor) -> None:
    """As apply_bitmask_torch. Both inputs need contiguous rows and the same device."""
    rows, width = logits.shape
    grid = (rows, triton.cdiv(width, BLOCK))
    _kernel[grid](logits, masks, width, logits.stride(0), masks.stride(0), BLOCK=BLOCK, **OPTIONS)
