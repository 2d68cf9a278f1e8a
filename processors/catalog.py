"""The built-in stages in the default order of a chain, and the parameters that requests are made of.

Masks come first, because a masked token stays masked; truncation comes after temperature, as in vLLM and HF.
Imports no torch, as each file of processors/stages.
"""

from __future__ import annotations

from typing import Any

from processors.base import Processor
from processors.params import Note, Phase, StageSpec
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
from processors.stages.grammar_stage import WHITESPACE_LIMIT, GrammarParams, GrammarStage
from processors.stages.masks import (
    BAN_LIMIT,
    AllowedParams,
    BanParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.stages.penalties import (
    BiasParams,
    FrequencyParams,
    PenaltyParams,
    PresenceParams,
    RepetitionParams,
)
from processors.stages.scale import TemperatureParams
from processors.stages.truncation import MinPParams, TopKParams, TopPParams

__all__ = [
    "BAN_LIMIT",
    "BUILTIN",
    "STAGES",
    "WHITESPACE_LIMIT",
    "AllowedParams",
    "BanParams",
    "BiasParams",
    "Draw",
    "FrequencyParams",
    "GrammarParams",
    "IgnoreEosParams",
    "MinPParams",
    "MinTokensParams",
    "Note",
    "PenaltyParams",
    "Phase",
    "PresenceParams",
    "RepetitionParams",
    "StageSpec",
    "SuppressParams",
    "TailParams",
    "TemperatureParams",
    "TopKParams",
    "TopPParams",
]

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
    thresholds.TopNSigma,  # first of its phase: its standard deviation is over all logits
    thresholds.TopH,
    thresholds.MinK,
    truncation.MinP,
    truncation.TopK,
    truncation.TopP,
    thresholds.Typical,
    thresholds.Epsilon,
    thresholds.Eta,
    thresholds.Tfs,
    thresholds.TopA,
    thresholds.PLess,
    truncation.Xtc,
    feedback.Mirostat,
    feedback.Skew,
    watermarks.SynthId,
    feedback.AdaptiveP,
    watermarks.GumbelMark,
)

BUILTIN: tuple[StageSpec, ...] = tuple(StageSpec.of(stage) for stage in STAGES)
