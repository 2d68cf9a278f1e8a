"""The built-in stages: names, parameters, notes and default order.

Imports no torch, so that help, completion and checks of presets stay fast. A module here holds the
declarations of a family of stages; other code imports their Params from it. The order of BUILTIN is the
default order of a chain: masks first, because a masked token stays masked; truncation after temperature, as
in vLLM and HF.
"""

from __future__ import annotations

from typing import Literal

from processors.catalog.feedback import FEEDBACK
from processors.catalog.forcing import FORCING
from processors.catalog.masks import (
    BAN_LIMIT,
    MASKS,
    WHITESPACE_LIMIT,
    AllowedParams,
    BanParams,
    GrammarParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.catalog.penalties import (
    PENALTIES,
    BiasParams,
    FrequencyParams,
    PenaltyParams,
    PresenceParams,
    RepetitionParams,
    Scope,
)
from processors.catalog.truncation import TRUNCATION, MinPParams, TemperatureParams, TopKParams, TopPParams
from processors.catalog.watermarks import WATERMARKS
from processors.params import Note, Phase, StageSpec

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

# The standard deviation of top_n_sigma is over all logits, so the stage truncates first.
_ORDER = """
    tail allowed suppress begin_suppress ban min_tokens ignore_eos eos_above no_repeat_ngram force
    reasoning_budget grammar
    bias sequence_bias length_decay length_boost repetition frequency presence dry lz kgw
    temperature dynamic_temperature edt smoothing
    top_n_sigma top_h min_k min_p top_k top_p typical epsilon eta tfs top_a p_less
    xtc mirostat skew synthid adaptive_p gumbel_mark
""".split()
_SPECS = {spec.name: spec for spec in (*MASKS, *FORCING, *PENALTIES, *TRUNCATION, *FEEDBACK, *WATERMARKS)}

BUILTIN: tuple[StageSpec, ...] = tuple(_SPECS[name] for name in _ORDER)
