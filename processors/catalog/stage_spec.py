"""Declaration of a stage: its phase, its parameters, and its notes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from processors.params import Params

__all__ = ["Note", "Phase", "StageSpec"]


class Phase(IntEnum):
    """The phases of a chain, in order."""

    CONSTRAIN = 0
    ADJUST = 1
    SCALE = 2
    TRUNCATE = 3
    GATE = 4


@dataclass(frozen=True, slots=True)
class Note:
    """Notes on one stage. In the formula x are the incoming logits and p their softmax."""

    formula: str
    reference: str
    example: str
    elsewhere: str


@dataclass(frozen=True, slots=True)
class StageSpec:
    """Declaration of a stage, known before its code is imported."""

    name: str
    phase: Phase
    params: type[Params]
    target: str  # "module:Class"
    source: str = "built-in"  # shown to users: the plug-in or module that added the stage
    note: Note | None = None
