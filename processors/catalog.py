"""The built-in stages: names, parameters and default order.

Imports no torch, so that help, completion and checks of presets stay fast. The order of BUILTIN is the
default order of a chain: masks first, because a masked token stays masked; truncation after temperature, as
in vLLM and HF.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from processors.constraint import GrammarKind
from processors.errors import ParamError
from processors.params import MOST, Params, param

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

BAN_LIMIT = 16384  # bytes of all banned texts; the tables of the stage grow with them
WHITESPACE_LIMIT = 1024
Scope = Literal["prompt", "output", "both"]
Draw = Literal["gumbel", "multinomial", "greedy"]


class Phase(IntEnum):
    """The phases of a chain, in order."""

    CONSTRAIN = 0
    ADJUST = 1
    SCALE = 2
    TRUNCATE = 3
    GATE = 4


@dataclass(frozen=True, slots=True)
class TailParams(Params):
    """Mask the ids that the model has and the tokenizer does not."""

    size: int = param(
        0, "Number of ids the tokenizer knows; ids from there on are masked, 0 is off.", ge=0, le=MOST
    )


@dataclass(frozen=True, slots=True)
class AllowedParams(Params):
    """Allow only the listed ids."""

    ids: tuple[int, ...] | None = param(None, "Only these token ids may be chosen.", ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.ids == ():
            raise ParamError("ids is an empty list, which would allow nothing. Leave it out to allow all.")


@dataclass(frozen=True, slots=True)
class SuppressParams(Params):
    """Mask the listed ids."""

    ids: tuple[int, ...] = param((), "These token ids are never chosen.", ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class BanParams(Params):
    """Keep texts out of the output, however they are cut into tokens."""

    texts: tuple[str, ...] = param((), "These texts never appear in the output, not even inside a word.")

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if "" in self.texts:
            path = (self.texts.index(""),)
            raise ParamError("texts has an empty text, which would ban everything. Remove it.", path)
        size = sum(len(text.encode(errors="surrogatepass")) for text in self.texts)
        if size > BAN_LIMIT:
            raise ParamError(f"texts are {size} bytes together, but the limit is {BAN_LIMIT}.")


@dataclass(frozen=True, slots=True)
class MinTokensParams(Params):
    """Mask every end-of-text and stop id until enough tokens are there."""

    count: int = param(
        0, "No end of text, stop id or stop string before this many output tokens.", ge=0, le=MOST
    )


@dataclass(frozen=True, slots=True)
class IgnoreEosParams(Params):
    """Mask the end-of-text ids, so that no end marker appears."""

    enabled: bool = param(False, "Never choose an end-of-text id.")


@dataclass(frozen=True, slots=True)
class GrammarParams(Params):
    """Allow only tokens that keep the output inside a grammar."""

    text: str = param("", "The grammar, written as `kind` says.")
    kind: GrammarKind = param("json_schema", "What the grammar is written in.")
    backend: Literal["trie", "xgrammar", "llguidance"] = param(
        "xgrammar", "What compiles it; trie is for choices."
    )
    whitespace: int = param(
        8, "At most this much white space in one place of a JSON document.", ge=0, le=WHITESPACE_LIMIT
    )
    canonical: bool = param(
        True, "Text that the grammar forces is cut into tokens as the tokenizer would, without a choice."
    )
    in_budget: bool = param(True, "Near the limit of tokens, allow only what can still be completed.")
    after: str = param("", "The output is free up to the end of this text; then the grammar begins.")


@dataclass(frozen=True, slots=True)
class BiasParams(Params):
    """Add to the logits of some tokens."""

    bias: tuple[tuple[int | str, float], ...] = param(
        (),
        "Added to the logit of a token, given by id or by a text that is one token; -inf bans it.",
        finite=False,
    )


@dataclass(frozen=True, slots=True)
class PenaltyParams(Params):
    """The parameters of repetition, frequency and presence; subclasses only change defaults."""

    penalty: float = param(0.0, "Strength.")
    scope: Scope = param("output", "Which tokens count: prompt, output or both.")
    window: int | None = param(
        None, "Only the last this many tokens of the scope count; null is all.", ge=1, le=MOST,
        hint="null means all tokens; leave the penalty at its default to switch it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param(
        (),
        "Never penalised and never counted: special, stop, token ids, texts that are one token.",
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
        "Never penalised and never counted: special, stop, token ids, texts that are one token.",
        ge=0,
        le=MOST,
    )


@dataclass(frozen=True, slots=True)
class FrequencyParams(PenaltyParams):
    """Subtract the penalty once per occurrence (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit for each time it occurred.")


@dataclass(frozen=True, slots=True)
class PresenceParams(PenaltyParams):
    """Subtract the penalty once from tokens that occurred (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit if it occurred.")


@dataclass(frozen=True, slots=True)
class TemperatureParams(Params):
    """Divide the logits; 0 is greedy."""

    temperature: float = param(1.0, "Above 1 flattens the distribution, below 1 sharpens; 0 is greedy.", ge=0)


@dataclass(frozen=True, slots=True)
class TopKParams(Params):
    """Keep the k most likely tokens."""

    k: int = param(0, "Keep the k most likely tokens; 0 or -1 keeps all.", ge=-1, le=MOST)
    ties: Literal["cut", "keep"] = param(
        "cut", "Ties with the k-th: cut keeps the lowest ids, keep keeps all."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)

    def is_off(self) -> bool:
        """Whether k is 0 or -1, which both mean off."""
        return self.k <= 0


@dataclass(frozen=True, slots=True)
class TopPParams(Params):
    """Keep the nucleus: the most likely tokens up to a mass of p (Holtzman et al. 2019)."""

    p: float = param(1.0, "Keep the most likely tokens whose mass reaches p; 1 keeps all.", ge=0, le=1)
    boundary: Literal["inclusive", "exclusive"] = param(
        "inclusive", "Whether the token that crosses p stays (inclusive) or goes (exclusive)."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class MinPParams(Params):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024)."""

    p: float = param(
        0.0, "Keep tokens at least p times as likely as the most likely one; 0 keeps all.", ge=0, le=1
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class StageSpec:
    """Declaration of a stage, known before its code is imported."""

    name: str
    phase: Phase
    params: type[Params]
    target: str  # "module:Class"
    source: str = "built-in"  # shown to users: the plug-in or module that added the stage


BUILTIN: tuple[StageSpec, ...] = (
    StageSpec("tail", Phase.CONSTRAIN, TailParams, "processors.stages.masks:Tail"),
    StageSpec("allowed", Phase.CONSTRAIN, AllowedParams, "processors.stages.masks:Allowed"),
    StageSpec("suppress", Phase.CONSTRAIN, SuppressParams, "processors.stages.masks:Suppress"),
    StageSpec("ban", Phase.CONSTRAIN, BanParams, "processors.stages.ban:Ban"),
    StageSpec("min_tokens", Phase.CONSTRAIN, MinTokensParams, "processors.stages.length:MinTokens"),
    StageSpec("ignore_eos", Phase.CONSTRAIN, IgnoreEosParams, "processors.stages.length:IgnoreEos"),
    StageSpec("grammar", Phase.CONSTRAIN, GrammarParams, "processors.stages.grammar:GrammarStage"),
    StageSpec("bias", Phase.ADJUST, BiasParams, "processors.stages.bias:Bias"),
    StageSpec("repetition", Phase.ADJUST, RepetitionParams, "processors.stages.penalties:Repetition"),
    StageSpec("frequency", Phase.ADJUST, FrequencyParams, "processors.stages.penalties:Frequency"),
    StageSpec("presence", Phase.ADJUST, PresenceParams, "processors.stages.penalties:Presence"),
    StageSpec("temperature", Phase.SCALE, TemperatureParams, "processors.stages.temperature:Temperature"),
    StageSpec("min_p", Phase.TRUNCATE, MinPParams, "processors.stages.truncation:MinP"),
    StageSpec("top_k", Phase.TRUNCATE, TopKParams, "processors.stages.truncation:TopK"),
    StageSpec("top_p", Phase.TRUNCATE, TopPParams, "processors.stages.truncation:TopP"),
)
