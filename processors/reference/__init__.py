"""Twins: plain-Python float64 references of the stages and samplers, one row at a time, without torch.

Where fast code and its twin disagree, the twin is right. `REFERENCE` maps the name of a stage to its twin,
`twin(logits, params, view) -> logits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from processors.reference import stages
from processors.reference.view import View

__all__ = ["REFERENCE", "Twin", "View"]

Twin = Callable[[list[float], Any, View], list[float]]

REFERENCE: dict[str, Twin] = {
    "tail": stages.tail,
    "allowed": stages.allowed,
    "suppress": stages.suppress,
    "ban": stages.ban,
    "min_tokens": stages.min_tokens,
    "ignore_eos": stages.ignore_eos,
    "grammar": stages.grammar,
    "bias": stages.bias,
    "repetition": stages.repetition,
    "frequency": stages.frequency,
    "presence": stages.presence,
    "temperature": stages.temperature,
    "min_p": stages.min_p,
    "top_k": stages.top_k,
    "top_p": stages.top_p,
}
