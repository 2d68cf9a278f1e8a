"""Twins: plain-Python float64 references of the stages and samplers, one row at a time, without torch.

If fast code and its twin disagree, the twin is right. `REFERENCE` maps the name of a stage to its twin,
`twin(logits, params, view) -> logits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from processors.reference import (
    endings,
    feedback,
    forcing,
    gate,
    ranked,
    repeats,
    scale,
    stages,
    thresholds,
    watermark,
)
from processors.reference.view import View

__all__ = ["REFERENCE", "Twin", "View"]

Twin = Callable[[list[float], Any, View], list[float]]

_FAMILIES = (stages, forcing, endings, repeats, scale, thresholds, ranked, gate, feedback, watermark)
REFERENCE: dict[str, Twin] = {name: twin for family in _FAMILIES for name, twin in family.TWINS.items()}
