"""Processed logits (edits, truncation and temperature applied), for readers that need a row's distribution.

Twin of processed_triton.
"""

from __future__ import annotations

import torch
from torch import Tensor

from processors.kernels.choice.draws import kept
from processors.kernels.choice.parts import Control, Level, Mark, cooled, heat
from processors.kernels.choice.patches import patched
from processors.kernels.operation import operation

__all__ = ["processed_logits", "processed_logits_torch"]


def processed_logits_torch(
    logits: Tensor, controls: Tensor, levels: Tensor, marks: Tensor, patches: Tensor | None = None
) -> Tensor:
    """As processed_logits, in PyTorch."""
    values = patched(logits, patches).float()
    cold = cooled(values, levels[:, Level.PEAK, None].float(), heat(controls, Control.HEAT_DRAW))
    left = cold.masked_fill(~kept(values, controls, levels, marks), -torch.inf)
    return torch.where(marks[:, Mark.FAULT, None] < 0, values, left)


processed_logits = operation(
    "processed_logits(Tensor logits, Tensor controls, Tensor levels, Tensor marks, Tensor? patches=None) "
    "-> Tensor",
    processed_logits_torch,
    "processors.kernels.choice.processed_triton:processed_logits_triton",
)
"""Logits [R, V] float32 after edits, temperature and truncation: -inf where not kept.

Failed rows have their edits only.
"""
