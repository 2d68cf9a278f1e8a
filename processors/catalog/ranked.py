"""Truncation by the order of the tokens: top_h, min_k, typical, tfs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import MOST, Params, param

__all__ = ["RANKED", "MinKParams", "TfsParams", "TopHParams", "TypicalParams"]


@dataclass(frozen=True, slots=True)
class TopHParams(Params):
    """Keep the most likely tokens up to a share of the entropy (Potraghloo et al. 2025)."""

    h: float = param(
        0.0, "Keep the most likely tokens whose part of the entropy reaches h of it; 0 keeps all.", ge=0, le=1
    )
    candidates: int = param(100, "Look at this many of the most likely tokens.", ge=1, le=MOST)
    renormalise: bool = param(
        True, "Entropy of the candidates alone; false is their part of that of all tokens."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class MinKParams(Params):
    """Keep the tokens before the steepest fall of the sorted logits (Ding et al. 2026)."""

    tau: float | None = param(
        None, "Keep tau tokens per unit of the range of the logits, or all before their steepest fall.", ge=0,
        hint="null means off; 0 goes by the steepest fall alone.",
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class TypicalParams(Params):
    """Keep tokens whose surprise is closest to the expected one (Meister et al. 2022)."""

    p: float = param(
        1.0, "Keep the tokens whose surprise is closest to the entropy, up to a mass of p; 1 keeps all.",
        gt=0, le=1,
    )  # fmt: skip
    boundary: Literal["inclusive", "strict", "exclusive"] = param(
        "inclusive",
        "Their mass reaches p (inclusive), exceeds it (strict) or stays below it (exclusive).",
    )
    ties: Literal["cut", "keep"] = param(
        "cut", "Tokens as close to the entropy as the last one: cut keeps the lowest ids, keep keeps all."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class TfsParams(Params):
    """Cut the tail where the curve of the sorted probabilities is flat (Phénix and Egan 2019)."""

    z: float = param(
        1.0, "Keep the most likely tokens up to a share z of the curvature of p; 1 keeps all.", ge=0, le=1
    )
    style: Literal["centred", "kobold"] = param(
        "centred", "A bend belongs to the token in its middle (centred) or to the one before it (kobold)."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


RANKED: tuple[StageSpec, ...] = (
    StageSpec(
        "top_h",
        Phase.TRUNCATE,
        TopHParams,
        "processors.stages.ranked:TopH",
        note=Note(
            "keep the most likely tokens, in order, while the sum of t = -r ln r is at most h * sum(t); r is "
            "the softmax of the candidates",
            "Potraghloo, Azizi, Kundu and Pedram 2025, Top-H Decoding, arXiv 2509.02510.",
            "top_h=0.4",
            "transformers top_h, with 100 candidates; the paper's code does not renormalise",
        ),
    ),
    StageSpec(
        "min_k",
        Phase.TRUNCATE,
        MinKParams,
        "processors.stages.ranked:MinK",
        note=Note(
            "x[i] = -inf where x[i] < l[k], l the sorted logits, R = l[1] - l[V] + 1e-8, "
            "k = max(argmax((l[j] - l[j+1]) / (j R)), floor(tau / R), 1)",
            "Ding et al. 2026, Min-k Sampling, arXiv 2604.11012.",
            "min_k=3",
            "proposed for vLLM as min_k",
        ),
    ),
    StageSpec(
        "typical",
        Phase.TRUNCATE,
        TypicalParams,
        "processors.stages.ranked:Typical",
        note=Note(
            "keep the tokens, by rising |-ln p[i] - H(p)|, until their p sums up to p",
            "Meister, Pimentel, Wiher and Cotterell 2022, Locally Typical Sampling, arXiv 2202.00666.",
            "typical:p=0.95,ties=keep",
            "transformers typical_p keeps ties; llama.cpp --typical and koboldcpp are strict; ExLlamaV2 and "
            "Aphrodite exclusive",
        ),
    ),
    StageSpec(
        "tfs",
        Phase.TRUNCATE,
        TfsParams,
        "processors.stages.ranked:Tfs",
        note=Note(
            "keep 1 + #{c <= z} of the sorted p, c the running sum of |p[j] - 2 p[j+1] + p[j+2]| divided by "
            "the whole sum; kobold keeps max(1, #)",
            "Phénix and Egan 2019, Tail Free Sampling.",
            "tfs=0.95",
            "text-generation-webui, ExLlamaV2 and Aphrodite tfs; koboldcpp tfs keeps one fewer",
        ),
    ),
)
