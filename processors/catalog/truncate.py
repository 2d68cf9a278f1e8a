"""Stages of the draw: temperature, and truncation by min_p, top_k and top_p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import MOST, Params, param

__all__ = ["TRUNCATE", "MinPParams", "TemperatureParams", "TopKParams", "TopPParams"]


@dataclass(frozen=True, slots=True)
class TemperatureParams(Params):
    """Divide the logits: above 1 flattens the distribution, below 1 sharpens it; 0 is greedy."""

    temperature: float = param(1.0, "Above 1 flattens the distribution, below 1 sharpens; 0 is greedy.", ge=0)


@dataclass(frozen=True, slots=True)
class MinPParams(Params):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024)."""

    p: float = param(
        0.0, "Keep tokens at least p times as likely as the most likely one; 0 keeps all.", ge=0, le=1
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


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


TRUNCATE: tuple[StageSpec, ...] = (
    StageSpec(
        "temperature",
        Phase.SCALE,
        TemperatureParams,
        "processors.stages.temperature:Temperature",
        note=Note(
            "x = x / temperature; at 0 the most likely token is taken",
            "Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines.",
            "temperature=0.7",
            "everyone; before truncation in vLLM and transformers, after it in llama.cpp and mlx-lm",
        ),
    ),
    StageSpec(
        "min_p",
        Phase.TRUNCATE,
        MinPParams,
        "processors.stages.truncation:MinP",
        note=Note(
            "x[i] = -inf where p[i] < p * max(p)",
            "Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, arXiv 2407.01082.",
            "min_p=0.05",
            "transformers, vLLM, SGLang, mlx-lm min_p; llama.cpp --min-p",
        ),
    ),
    StageSpec(
        "top_k",
        Phase.TRUNCATE,
        TopKParams,
        "processors.stages.truncation:TopK",
        note=Note(
            "x[i] = -inf where x[i] is not among the k largest",
            "Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, arXiv 1805.04833.",
            "top_k:k=40,ties=keep",
            "everyone; ties stay in transformers and are cut in llama.cpp; in vLLM the back end decides",
        ),
    ),
    StageSpec(
        "top_p",
        Phase.TRUNCATE,
        TopPParams,
        "processors.stages.truncation:TopP",
        note=Note(
            "keep the most likely tokens, in order, until their p sums up to p",
            "Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, arXiv 1904.09751.",
            "top_p=0.9",
            "everyone; the token that crosses p stays, but not in ExLlamaV2",
        ),
    ),
)
