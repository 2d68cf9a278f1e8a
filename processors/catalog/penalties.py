"""Stages that change logits of some tokens: bias, sequence_bias, repetition, frequency, presence; and
those that look for repetitions of several tokens: no_repeat_ngram, dry, lz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.errors import ParamError
from processors.params import MOST, Params, Phase, StageSpec, param

Scope = Literal["prompt", "output", "both"]
SequenceKey = int | tuple[int, ...] | str  # an id, several, or a text

_SPARED = "Never penalised and never counted: special, stop, eos, newline, ids, texts of one token."


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
    exempt: tuple[int | str, ...] = param((), _SPARED, ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class RepetitionParams(PenaltyParams):
    """Divide positive and multiply negative logits of tokens seen before (Keskar et al. 2019)."""

    penalty: float = param(
        1.0, "Above 1 makes tokens seen before less likely, below 1 more likely.", gt=0, hint="1.0 means off."
    )
    scope: Scope = param("both", "Which tokens count: prompt, output or both.")
    exempt: tuple[int | str, ...] = param(("special",), _SPARED, ge=0, le=MOST)
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


PENALTIES = (
    StageSpec("bias", Phase.ADJUST, BiasParams, "processors.stages.penalties:Bias").with_note(
        "x[i] = x[i] + bias[i]",
        "OpenAI's logit_bias.",
        'bias={"42": 1.5, " the": -2}',
        "vLLM, SGLang and llama.cpp logit_bias, transformers sequence_bias",
    ),
    StageSpec(
        "sequence_bias", Phase.ADJUST, SequenceBiasParams, "processors.stages.penalties:SequenceBias"
    ).with_note(
        "x[i] = x[i] + bias for each sequence that i completes behind the last tokens",
        "transformers' SequenceBiasLogitsProcessor.",
        'sequence_bias={" of the": -2}',
        "transformers sequence_bias, the same; a sequence of one token is always biased",
    ),
    StageSpec(
        "repetition", Phase.ADJUST, RepetitionParams, "processors.stages.penalties:Repetition"
    ).with_note(
        "x[i] = x[i] / penalty if x[i] > 0 else x[i] * penalty, once for every token i seen",
        "Keskar et al. 2019, CTRL: A Conditional Transformer Language Model, arXiv 1909.05858.",
        "repetition:penalty=1.1,window=64",
        "transformers, vLLM, SGLang, mlx-lm repetition_penalty, llama.cpp --repeat-penalty; "
        "transformers encoder_repetition_penalty r is penalty=1/r,scope=prompt; slope is koboldcpp's "
        "rep_pen_slope; token_repetition_range r and token_repetition_decay of ExLlamaV2 are sustain=r+1 "
        "and decay, those of ExLlamaV3 sustain=r and decay_space=logit",
    ),
    StageSpec("frequency", Phase.ADJUST, FrequencyParams, "processors.stages.penalties:Frequency").with_note(
        "x[i] = x[i] - penalty * (times that token i was seen)",
        "OpenAI's frequency_penalty.",
        "frequency=0.4",
        "vLLM, SGLang, mlx-lm frequency_penalty; llama.cpp --frequency-penalty",
    ),
    StageSpec("presence", Phase.ADJUST, PresenceParams, "processors.stages.penalties:Presence").with_note(
        "x[i] = x[i] - penalty for every token i seen",
        "OpenAI's presence_penalty.",
        "presence=0.6",
        "vLLM, SGLang, mlx-lm presence_penalty; llama.cpp --presence-penalty",
    ),
    StageSpec(
        "no_repeat_ngram", Phase.CONSTRAIN, NoRepeatNgramParams, "processors.stages.repeats:NoRepeatNgram"
    ).with_note(
        "x[i] = -inf if the last n - 1 tokens, followed by i, occurred in the scope",
        "Paulus, Xiong and Socher 2017, A Deep Reinforced Model for Abstractive Summarization, "
        "arXiv 1705.04304.",
        "no_repeat_ngram=3",
        "transformers no_repeat_ngram_size, which has no exempt tokens (exempt=[]); "
        "encoder_no_repeat_ngram_size is scope=prompt",
    ),
    StageSpec("dry", Phase.ADJUST, DryParams, "processors.stages.repeats:Dry").with_note(
        "x[i] = x[i] - multiplier * base^(n - allowed), n the most last tokens, at least allowed, "
        "that occurred before an earlier i; none beyond a breaker",
        "p-e-w 2024, text-generation-webui pull request 5677; breakers and arithmetic as in llama.cpp.",
        "dry:multiplier=0.8,window=1024",
        "llama.cpp --dry-*, with window=64 and exempt=[]; koboldcpp: strict=true; text-generation-webui "
        "takes one token for a breaker; ExLlamaV2: matches=count,max_ngram=20",
    ),
    StageSpec("lz", Phase.ADJUST, LzParams, "processors.stages.repeats:Lz").with_note(
        "x[i] = x[i] - strength * (log2 V - min(log2 V, (log2(d + 1) + log2 k) / k)), the least over "
        "earlier i: d tokens back, k - 1 last tokens before it",
        "Ginart et al. 2025, LZ Penalty, arXiv 2504.20131.",
        "lz=0.15",
        "SGLang pull request 4647 (closed), which skips the first tokens of the window",
    ),
)
