"""Twins: plain-Python float64 references of the stages and samplers, one row at a time, without torch.

Where fast code and its twin disagree, the twin is right. `REFERENCE` maps the name of a stage to its twin,
`twin(logits, params, view) -> logits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from processors.reference import gate, ranked, stages, thresholds
from processors.reference.view import View

__all__ = ["REFERENCE", "Twin", "View"]

Twin = Callable[[list[float], Any, View], list[float]]

REFERENCE: dict[str, Twin] = {**stages.TWINS, **thresholds.TWINS, **ranked.TWINS, **gate.TWINS}
