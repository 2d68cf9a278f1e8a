"""The built-in stages in the default order of a chain.

Masks come first, because a masked token stays masked; truncation comes after temperature, as in vLLM and HF.
Imports no torch, as each file of processors/stages.
"""

from __future__ import annotations

from typing import Any

from processors.base import Processor
from processors.params import Phase, StageSpec
from processors.request_values import Draw
from processors.stages import (
    feedback,
    forcing,
    masks,
    penalties,
    repeats,
    scale,
    thresholds,
    truncation,
    watermarks,
)
from processors.stages.grammar_stage import GrammarStage

__all__ = ["BUILTIN", "STAGES", "Draw", "Phase", "StageSpec"]

STAGES: tuple[type[Processor[Any]], ...] = (
    masks.Tail,
    masks.Allowed,
    masks.Suppress,
    masks.BeginSuppress,
    masks.Ban,
    masks.MinTokens,
    masks.IgnoreEos,
    masks.EosAbove,
    repeats.NoRepeatNgram,
    forcing.Force,
    forcing.ReasoningBudget,
    GrammarStage,
    penalties.Bias,
    penalties.SequenceBias,
    forcing.LengthDecay,
    forcing.LengthBoost,
    penalties.Repetition,
    penalties.Frequency,
    penalties.Presence,
    repeats.Dry,
    repeats.Lz,
    watermarks.Kgw,
    scale.Temperature,
    scale.DynamicTemperature,
    scale.Edt,
    scale.Smoothing,
    *thresholds.TRUNCATING,
    truncation.Xtc,
    feedback.Mirostat,
    feedback.Skew,
    watermarks.SynthId,
    feedback.AdaptiveP,
    watermarks.GumbelMark,
)

BUILTIN: tuple[StageSpec, ...] = tuple(StageSpec.of(stage) for stage in STAGES)
