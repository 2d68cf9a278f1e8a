"""Stages that look for repetitions of several tokens: no_repeat_ngram, dry, lz."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.adjust import Scope
from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.errors import ParamError
from processors.params import MOST, Params, param

__all__ = ["BREAKER_LIMIT", "REPEATS", "DryParams", "LzParams", "NoRepeatNgramParams"]

BREAKER_LIMIT = 1024  # bytes of all breakers; the text of each token is searched for all of them


_SCOPE = "Where the earlier occurrence lies: prompt, output or both."
_WINDOW = "Only the last this many tokens of the scope count; null is all."
_ALL = "null means all tokens."
_EXEMPT = "Never penalised, and no part of a repetition: special, stop, token ids, texts that are one token."


@dataclass(frozen=True, slots=True)
class NoRepeatNgramParams(Params):
    """Mask tokens that would repeat n tokens in a row (Paulus et al. 2017)."""

    n: int = param(0, "No n tokens in a row occur twice; 0 is off, 1 forbids all tokens seen.", ge=0, le=MOST)
    scope: Scope = param("both", _SCOPE)
    window: int | None = param(None, _WINDOW, ge=1, le=MOST, hint=_ALL)
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class DryParams(Params):
    """Subtract more from a token the longer the repetition is that it would continue (p-e-w 2024, DRY)."""

    multiplier: float = param(
        0.0, "Subtracted from a token that continues a repetition of the allowed length; 0 is off.", ge=0
    )
    base: float = param(1.75, "Each further token of the repetition multiplies the penalty by this.", ge=1)
    allowed: int = param(2, "Repetitions of fewer tokens are not penalised.", ge=0, le=MOST)
    window: int | None = param(None, _WINDOW, ge=1, le=MOST, hint=_ALL)
    scope: Scope = param("both", _SCOPE)
    breakers: tuple[str, ...] = param(
        ("\n", ":", '"', "*"), "Texts that end a repetition, in whatever tokens; one-token ones are spared."
    )
    max_ngram: int | None = param(
        None, "Longer repetitions count as this many tokens; null is no limit.", ge=1, le=MOST
    )
    matches: Literal["max", "count"] = param(
        "max",
        "The longest repetition of a token decides (max), or how often it continued the longest one (count).",
    )
    strict: bool = param(
        False,
        "As koboldcpp: none until more tokens than allowed follow a breaker, and breakers are not spared.",
    )
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if "" in self.breakers:
            path = (self.breakers.index(""),)
            raise ParamError("breakers has an empty text, which would end every repetition. Remove it.", path)
        size = sum(len(text.encode(errors="surrogatepass")) for text in self.breakers)
        if size > BREAKER_LIMIT:
            raise ParamError(f"breakers are {size} bytes together, but the limit is {BREAKER_LIMIT}.")


@dataclass(frozen=True, slots=True)
class LzParams(Params):
    """Subtract what a Lempel-Ziv code saves on a token, in bits (Ginart et al. 2025)."""

    strength: float = param(0.0, "Subtracted from a logit for each bit that the code saves; 0 is off.", ge=0)
    length: int = param(32, "Longer repetitions count as this many tokens.", ge=1, le=MOST)
    window: int | None = param(512, _WINDOW, ge=1, le=MOST, hint=_ALL)
    scope: Scope = param("output", _SCOPE)
    exempt: tuple[int | str, ...] = param(("special",), _EXEMPT, ge=0, le=MOST)


REPEATS: tuple[StageSpec, ...] = (
    StageSpec(
        "no_repeat_ngram",
        Phase.CONSTRAIN,
        NoRepeatNgramParams,
        "processors.stages.repeats:NoRepeatNgram",
        note=Note(
            "x[i] = -inf if the last n - 1 tokens, followed by i, occurred in the scope",
            "Paulus, Xiong and Socher 2017, A Deep Reinforced Model for Abstractive Summarization, "
            "arXiv 1705.04304.",
            "no_repeat_ngram=3",
            "transformers no_repeat_ngram_size, which has no exempt tokens (exempt=[]); "
            "encoder_no_repeat_ngram_size is scope=prompt",
        ),
    ),
    StageSpec(
        "dry",
        Phase.ADJUST,
        DryParams,
        "processors.stages.repeats:Dry",
        note=Note(
            "x[i] = x[i] - multiplier * base^(n - allowed), n the most last tokens, at least allowed, "
            "that occurred before an earlier i; none beyond a breaker",
            "p-e-w 2024, text-generation-webui pull request 5677; breakers and arithmetic as in llama.cpp.",
            "dry:multiplier=0.8,window=1024",
            "llama.cpp --dry-*, with window=64 and exempt=[]; koboldcpp: strict=true; text-generation-webui "
            "takes one token for a breaker; ExLlamaV2: matches=count,max_ngram=20",
        ),
    ),
    StageSpec(
        "lz",
        Phase.ADJUST,
        LzParams,
        "processors.stages.repeats:Lz",
        note=Note(
            "x[i] = x[i] - strength * (log2 V - min(log2 V, (log2(d + 1) + log2 k) / k)), the least over "
            "earlier i: d tokens back, k - 1 last tokens before it",
            "Ginart et al. 2025, LZ Penalty, arXiv 2504.20131.",
            "lz=0.15",
            "SGLang pull request 4647 (closed), which skips the first tokens of the window",
        ),
    ),
)
