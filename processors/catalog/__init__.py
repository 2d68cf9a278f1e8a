"""The built-in stages: names, parameters, notes and default order.

Imports no torch, so that help, completion and checks of presets stay fast. The order of BUILTIN is the
default order of a chain: masks first, because a masked token stays masked; truncation after temperature, as
in vLLM and HF.
"""

from __future__ import annotations

from typing import Literal

from processors.catalog.adjust import (
    ADJUST,
    BiasParams,
    FrequencyParams,
    PenaltyParams,
    PresenceParams,
    RepetitionParams,
    Scope,
)
from processors.catalog.constrain import (
    BAN_LIMIT,
    CONSTRAIN,
    WHITESPACE_LIMIT,
    AllowedParams,
    BanParams,
    GrammarParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.catalog.truncate import TRUNCATE, MinPParams, TemperatureParams, TopKParams, TopPParams

__all__ = [
    "BAN_LIMIT",
    "BUILTIN",
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
    "Scope",
    "StageSpec",
    "SuppressParams",
    "TailParams",
    "TemperatureParams",
    "TopKParams",
    "TopPParams",
]

Draw = Literal["gumbel", "multinomial", "greedy"]

BUILTIN: tuple[StageSpec, ...] = (*CONSTRAIN, *ADJUST, *TRUNCATE)
