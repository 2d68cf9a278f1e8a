"""Watermarks: kgw, synthid, gumbel_mark. Their keys are secrets and never shown in a chain's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.errors import ParamError
from processors.params import Params, Phase, Secret, StageSpec, param

_INT64 = 2**63 - 1
_MOST_DEPTH = 60
_TABLE_SIZES = [2**bits for bits in range(1, 21)]


@dataclass(frozen=True, slots=True)
class KgwParams(Params):
    """Make pseudorandomly chosen tokens, the green ones, more likely (Kirchenbauer et al. 2023)."""

    key: Secret | None = param(None, "The key, a whole number below 2**63; null is off.")
    ratio: float = param(0.25, "Part of the vocabulary that is green.", gt=0, lt=1)
    bias: float = param(2.0, "Added to the logits of green tokens.", ge=-1000, le=1000)
    scheme: Literal["lefthash", "selfhash"] = param(
        "lefthash",
        "What decides which tokens are green: the token before (lefthash), or the smallest hash of the "
        "context and the token itself (selfhash).",
    )
    width: int = param(1, "Tokens of the context; with selfhash they include the token itself.", ge=1, le=64)
    vocab: int | None = param(
        None, "Size of the vocabulary that is divided; null is the number of logits.", ge=2, le=2**24
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, most=1, limit=_INT64)


@dataclass(frozen=True, slots=True)
class SynthIdParams(Params):
    """Choose among the model's tokens by tournaments of pseudorandom bits (Dathathri et al. 2024)."""

    key: Secret | None = param(
        None, f"The keys, one for each tournament: 1 to {_MOST_DEPTH} whole numbers below 2**63; null is off."
    )
    ngram: int = param(5, "Tokens whose hash decides the bits: the context and the token.", ge=2, le=64)
    table_size: int = param(65536, "Number of bits in the table, a power of 2.", ge=2, le=2**20)
    table_seed: int = param(0, "Seed of the table.", ge=0, le=_INT64 // 4)
    history: int = param(
        1024, "A context that is among this many before it gets no mark again.", ge=1, le=65536
    )
    skip_first: bool = param(False, "Leave the first ngram - 1 tokens without a mark.")

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, most=_MOST_DEPTH, limit=_INT64)
        if self.table_size not in _TABLE_SIZES:
            raise ParamError(f"table_size is {self.table_size}, but has to be a power of 2.")


@dataclass(frozen=True, slots=True)
class GumbelMarkParams(Params):
    """Draw with noise that the key and the last tokens decide (Aaronson 2022): the draw is not changed."""

    key: Secret | None = param(None, "The key, a whole number below 2**64; null is off.")
    width: int = param(4, "Output tokens of the context.", ge=1, le=64)
    deduplicate: Literal["single_turn", "all", "none"] = param(
        "single_turn",
        "Where a context may not have been for a token to be marked: in the output, also in the prompt (the "
        "first tokens are then not marked), or anywhere.",
    )
    history: int | None = param(
        8192, "How many contexts before it a context is compared with; null is all.", ge=1, le=2**24
    )
    alpha: float | None = param(
        None, "With two keys derived from the key: how often the second is used; null is one key.", ge=0, le=1
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        _refuse_keys(self.key, most=1)


def _refuse_keys(key: Secret | None, *, most: int, limit: int | None = None) -> None:
    """Raise ParamError, without the value, for too many numbers, or one above the limit."""
    numbers = key.numbers if key is not None else ()
    if len(numbers) > most:
        raise ParamError(f"key has {len(numbers)} numbers, but has to have at most {most}.")
    if limit is not None and any(number > limit for number in numbers):
        raise ParamError("key has a number of 2**63 or more, but it has to be below.")


WATERMARKS = (
    StageSpec("kgw", Phase.ADJUST, KgwParams, "processors.stages.watermarks:Kgw").with_note(
        "x[i] = x[i] + bias where i is green: one of the first ratio * V ids of a permutation that is "
        "seeded by key and context",
        "Kirchenbauer et al. 2023, A Watermark for Large Language Models, arXiv 2301.10226; On the "
        "Reliability of Watermarks for Large Language Models, arXiv 2306.04634.",
        "kgw:key=15485863,bias=2.5",
        "transformers WatermarkingConfig (the same green tokens on a CPU; there after truncation)",
    ),
    StageSpec("synthid", Phase.GATE, SynthIdParams, "processors.stages.watermarks:SynthId").with_note(
        "p[i] = p[i] * (1 + g[d, i] - sum_j g[d, j] p[j]) for each depth d; g[d, i] is a bit of the "
        "table at hash(context, i, key[d])",
        "Dathathri et al. 2024, Scalable watermarking for identifying large language model outputs, "
        "Nature 634.",
        "synthid:key=[654,400,836]",
        "transformers SynthIDTextWatermarkingConfig (the same bits; there a masked token comes back)",
    ),
    StageSpec(
        "gumbel_mark", Phase.GATE, GumbelMarkParams, "processors.stages.watermarks:GumbelMark"
    ).with_note(
        "x[i] = -inf unless i = argmax(x - ln(-ln u)), u[i] = Philox4x32-10(key, context, i)",
        "Aaronson 2022, Watermarking of Large Language Models; Salmon et al. 2011, Parallel Random "
        "Numbers: As Easy as 1, 2, 3.",
        "gumbel_mark:key=42",
        "vLLM watermarking gumbel and dual_key_gumbel (the same u)",
    ),
)
