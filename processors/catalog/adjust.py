"""Stages that change logits of some tokens: bias, sequence_bias, repetition, frequency, presence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import MOST, Params, param

__all__ = [
    "ADJUST",
    "BiasParams",
    "FrequencyParams",
    "PenaltyParams",
    "PresenceParams",
    "RepetitionParams",
    "Scope",
    "SequenceBiasParams",
    "SequenceKey",
]

Scope = Literal["prompt", "output", "both"]
SequenceKey = int | tuple[int, ...] | str  # an id, several, or a text


@dataclass(frozen=True, slots=True)
class BiasParams(Params):
    """Add to the logits of some tokens."""

    bias: tuple[tuple[int | str, float], ...] = param(
        (),
        "Added to the logit of a token, given by id or by a text that is one token; -inf bans it.",
        finite=False,
    )


@dataclass(frozen=True, slots=True)
class SequenceBiasParams(Params):
    """Add to the logits of tokens that complete a sequence (transformers)."""

    biases: tuple[tuple[SequenceKey, float], ...] = param(
        (),
        "Added to the last token of a sequence, given as text or ids, where its other tokens come before; "
        "-inf bans it.",
        finite=False,
    )


@dataclass(frozen=True, slots=True)
class PenaltyParams(Params):
    """The parameters of repetition, frequency and presence; subclasses change defaults and add fields."""

    penalty: float = param(0.0, "Strength.")
    scope: Scope = param("output", "Which tokens count: prompt, output or both.")
    window: int | None = param(
        None, "Only the last this many tokens of the scope count; null is all.", ge=1, le=MOST,
        hint="null means all tokens; leave the penalty at its default to switch it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param(
        (),
        "Never penalised and never counted: special, stop, eos, newline, ids, texts of one token.",
        ge=0,
        le=MOST,
    )


@dataclass(frozen=True, slots=True)
class RepetitionParams(PenaltyParams):
    """Divide positive and multiply negative logits of tokens seen before (Keskar et al. 2019)."""

    penalty: float = param(
        1.0, "Above 1 makes tokens seen before less likely, below 1 more likely.", gt=0, hint="1.0 means off."
    )
    scope: Scope = param("both", "Which tokens count: prompt, output or both.")
    exempt: tuple[int | str, ...] = param(
        ("special",),
        "Never penalised and never counted: special, stop, eos, newline, ids, texts of one token.",
        ge=0,
        le=MOST,
    )
    slope: float = param(
        1.0, "Share of a penalty above 1 that tokens have which are seen in the older half only.", ge=0
    )
    sustain: int | None = param(
        None, "The penalty is full for this many last tokens, then it fades; null is all.", ge=1, le=MOST
    )
    decay: int = param(0, "Number of tokens before those over which it fades; 0: it ends.", ge=0, le=MOST)
    decay_space: Literal["penalty", "logit"] = param(
        "penalty", "What fades: the penalty towards 1, or the difference that it makes to the logit."
    )


@dataclass(frozen=True, slots=True)
class FrequencyParams(PenaltyParams):
    """Subtract the penalty once per occurrence (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit for each time it occurred.")


@dataclass(frozen=True, slots=True)
class PresenceParams(PenaltyParams):
    """Subtract the penalty once from tokens that occurred (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit if it occurred.")


ADJUST: tuple[StageSpec, ...] = (
    StageSpec(
        "bias",
        Phase.ADJUST,
        BiasParams,
        "processors.stages.bias:Bias",
        note=Note(
            "x[i] = x[i] + bias[i]",
            "OpenAI's logit_bias.",
            'bias={"42": 1.5, " the": -2}',
            "vLLM, SGLang and llama.cpp logit_bias, transformers sequence_bias",
        ),
    ),
    StageSpec(
        "sequence_bias",
        Phase.ADJUST,
        SequenceBiasParams,
        "processors.stages.sequence_bias:SequenceBias",
        note=Note(
            "x[i] = x[i] + bias for each sequence that i completes behind the last tokens",
            "transformers' SequenceBiasLogitsProcessor.",
            'sequence_bias={" of the": -2}',
            "transformers sequence_bias, the same; a sequence of one token is always biased",
        ),
    ),
    StageSpec(
        "repetition",
        Phase.ADJUST,
        RepetitionParams,
        "processors.stages.penalties:Repetition",
        note=Note(
            "x[i] = x[i] / penalty if x[i] > 0 else x[i] * penalty, once for every token i seen",
            "Keskar et al. 2019, CTRL: A Conditional Transformer Language Model, arXiv 1909.05858.",
            "repetition:penalty=1.1,window=64",
            "transformers, vLLM, SGLang, mlx-lm repetition_penalty, llama.cpp --repeat-penalty; "
            "transformers encoder_repetition_penalty r is penalty=1/r,scope=prompt; slope is koboldcpp's "
            "rep_pen_slope; token_repetition_range r and token_repetition_decay of ExLlamaV2 are sustain=r+1 "
            "and decay, those of ExLlamaV3 sustain=r and decay_space=logit",
        ),
    ),
    StageSpec(
        "frequency",
        Phase.ADJUST,
        FrequencyParams,
        "processors.stages.penalties:Frequency",
        note=Note(
            "x[i] = x[i] - penalty * (times that token i was seen)",
            "OpenAI's frequency_penalty.",
            "frequency=0.4",
            "vLLM, SGLang, mlx-lm frequency_penalty; llama.cpp --frequency-penalty",
        ),
    ),
    StageSpec(
        "presence",
        Phase.ADJUST,
        PresenceParams,
        "processors.stages.penalties:Presence",
        note=Note(
            "x[i] = x[i] - penalty for every token i seen",
            "OpenAI's presence_penalty.",
            "presence=0.6",
            "vLLM, SGLang, mlx-lm presence_penalty; llama.cpp --presence-penalty",
        ),
    ),
)
