"""Truncation by a threshold from a row's distribution: top_n_sigma, epsilon, eta, top_a, p_less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import MOST, Params, param

__all__ = ["THRESHOLDS", "EpsilonParams", "EtaParams", "PLessParams", "TopAParams", "TopNSigmaParams"]


@dataclass(frozen=True, slots=True)
class TopNSigmaParams(Params):
    """Keep logits within n standard deviations of the largest one (Tang et al. 2024)."""

    n: float = param(
        0.0, "Keep logits at most n standard deviations below the largest; 0 or -1 keeps all.", ge=-1
    )
    std: Literal["population", "sample"] = param(
        "population", "Standard deviation over V logits: divided by V (population) or by V - 1 (sample)."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)

    def is_off(self) -> bool:
        """Whether n is 0 or less, which all mean off."""
        return self.n <= 0


@dataclass(frozen=True, slots=True)
class EpsilonParams(Params):
    """Keep tokens with at least a probability (Hewitt, Manning and Liang 2022)."""

    cutoff: float = param(0.0, "Keep tokens at least this probable; 0 keeps all.", ge=0, lt=1)
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class EtaParams(Params):
    """As epsilon, with a lower cutoff where the distribution is flat (Hewitt, Manning and Liang 2022)."""

    cutoff: float = param(
        0.0, "Keep tokens at least as probable as the smaller of this and its root times exp(-entropy).",
        ge=0, lt=1,
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class TopAParams(Params):
    """Keep tokens at least as probable as a times the square of the largest probability."""

    a: float = param(
        0.0, "Keep tokens at least as probable as a times the largest probability squared; 0 keeps all.",
        ge=0, le=1,
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class PLessParams(Params):
    """Keep tokens at least as probable as a drawn token is on average (Tan et al. 2025)."""

    order: float = param(
        1.0, "Keep tokens above the mean probability of this order; 2 is that of a drawn token, 1 keeps all.",
        ge=1, le=100,
    )  # fmt: skip
    norm: bool = param(False, "Subtract from the mean what a flat distribution has.")
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


THRESHOLDS: tuple[StageSpec, ...] = (
    StageSpec(
        "top_n_sigma",
        Phase.TRUNCATE,
        TopNSigmaParams,
        "processors.stages.thresholds:TopNSigma",
        note=Note(
            "x[i] = -inf where x[i] < max(x) - n * sigma(x)",
            "Tang et al. 2024, Top-n-sigma: Not All Logits Are You Need, arXiv 2411.07641.",
            "top_n_sigma=1",
            "llama.cpp --top-n-sigma, koboldcpp nsigma; Aphrodite and text-generation-webui divide by V - 1",
        ),
    ),
    StageSpec(
        "epsilon",
        Phase.TRUNCATE,
        EpsilonParams,
        "processors.stages.thresholds:Epsilon",
        note=Note(
            "x[i] = -inf where p[i] < min(cutoff, max(p))",
            "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
            "arXiv 2210.15191.",
            "epsilon=3e-4",
            "transformers epsilon_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
        ),
    ),
    StageSpec(
        "eta",
        Phase.TRUNCATE,
        EtaParams,
        "processors.stages.thresholds:Eta",
        note=Note(
            "x[i] = -inf where p[i] < min(cutoff, sqrt(cutoff) * exp(-H(p)), max(p))",
            "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
            "arXiv 2210.15191.",
            "eta=3e-4",
            "transformers eta_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
        ),
    ),
    StageSpec(
        "top_a",
        Phase.TRUNCATE,
        TopAParams,
        "processors.stages.thresholds:TopA",
        note=Note(
            "x[i] = -inf where p[i] < a * max(p)^2",
            "BlinkDL 2022, RWKV-LM, top-a sampling.",
            "top_a=0.2",
            "text-generation-webui, koboldcpp and ExLlamaV2 top_a",
        ),
    ),
    StageSpec(
        "p_less",
        Phase.TRUNCATE,
        PLessParams,
        "processors.stages.thresholds:PLess",
        note=Note(
            "x[i] = -inf where p[i] < min(S, max(p)), S = (sum p^order)^(1 / (order - 1)); with norm "
            "(V S - 1) / (V - 1)",
            "Tan et al. 2025, p-less Sampling, arXiv 2509.23234.",
            "p_less=2",
            "proposed for vLLM and llama.cpp as p_less",
        ),
    ),
)
