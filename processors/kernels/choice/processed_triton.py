"""The kernel of processed_logits: one pass over the logits [R, V], grid (R, ceil(V / TILE)).

A program applies patch, threshold and temperature to TILE ids of a row. Each element has the bits of the
twin, as division and sort keys are those of parts_triton.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from processors.kernels.choice.parts_triton import _of_cooled, _of_logits, _of_order, patch_arguments
from processors.kernels.choice.tables import Control, Level, Mark

__all__ = ["OPTIONS", "TILE", "processed_logits_triton"]

TILE = 4096  # ids per program
OPTIONS = {"num_warps": 8, "enable_fp_fusion": False}

_INF, _TILE = tl.constexpr(float("inf")), tl.constexpr(TILE)
_CONTROLS, _LEVELS, _MARKS = tl.constexpr(len(Control)), tl.constexpr(len(Level)), tl.constexpr(len(Mark))
_HEAT_CUT, _HEAT_DRAW = tl.constexpr(int(Control.HEAT_CUT)), tl.constexpr(int(Control.HEAT_DRAW))
_PEAK = tl.constexpr(int(Level.PEAK))
_FAULT, _LEAST = tl.constexpr(int(Mark.FAULT)), tl.constexpr(int(Mark.LEAST))


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _kernel(  # type: ignore[no-untyped-def]
    logits, controls, levels, marks, found, width, stride, patches, size, HAS_PATCH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    controls, marks = controls + row * _CONTROLS, marks + row * _MARKS
    ids = tl.program_id(1) * _TILE + tl.arange(0, _TILE)
    x = _of_logits(logits + row * stride, patches + row * size, ids, ids < width, width, HAS_PATCH)
    if tl.load(marks + _FAULT) == 0:
        peak = tl.load(levels + row * _LEVELS + _PEAK).to(tl.float32)
        cut = _of_cooled(x, peak, tl.load(controls + _HEAT_CUT).to(tl.float32))
        is_kept = (x > -_INF) & (_of_order(cut, ids) >= tl.load(marks + _LEAST))
        x = tl.where(is_kept, _of_cooled(x, peak, tl.load(controls + _HEAT_DRAW).to(tl.float32)), -_INF)
    tl.store(found + row * width + ids, x, mask=ids < width)


def processed_logits_triton(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As processed_logits_torch."""
    rows, width = logits.shape
    found = torch.empty((rows, width), dtype=torch.float32, device=logits.device)
    grid = (rows, triton.cdiv(width, TILE))
    _kernel[grid](
        logits, controls, levels, marks, found, width, logits.stride(0), **patch_arguments(logits, patches),
        **OPTIONS,
    )  # fmt: skip
    return found
