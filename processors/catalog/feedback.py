"""Stages that follow the drawn tokens, mirostat and adaptive_p, and skew, which bends the draw."""

from __future__ import annotations

from dataclasses import dataclass

from processors.params import Params, Phase, StageSpec, param


@dataclass(frozen=True, slots=True)
class MirostatParams(Params):
    """Truncate so that the surprise of the drawn tokens stays at a target (Basu et al. 2021)."""

    version: int = param(0, "2 cuts by surprise, 1 by an estimated number of tokens, 0 is off.", ge=0, le=2)
    tau: float = param(5.0, "Surprise to keep on average, in bits.", ge=0, le=1000)
    eta: float = param(0.1, "How fast the limit follows the surprise of the last token.", ge=0, le=1000)


@dataclass(frozen=True, slots=True)
class SkewParams(Params):
    """Move the draw towards unlikely tokens, or likely ones."""

    s: float = param(
        0.0, "Above 0 towards unlikely tokens, below 0 towards likely ones; 0 is off.", ge=-10, le=10
    )


@dataclass(frozen=True, slots=True)
class AdaptivePParams(Params):
    """Prefer tokens near a probability, so that the drawn ones have it on average."""

    target: float = param(
        0.0, "Probability that drawn tokens shall have on average; 0 or below is off.", ge=-1, le=1
    )
    decay: float = param(
        0.9, "Weight of the average so far against the last token's probability; 0 looks at the last alone.",
        ge=0, le=0.99,
    )  # fmt: skip

    def is_off(self) -> bool:
        return self.target <= 0


FEEDBACK = (
    StageSpec("mirostat", Phase.GATE, MirostatParams, "processors.stages.feedback:Mirostat").with_note(
        "version 2: x[i] = -inf where -log2 p[i] > mu; version 1: keep the k most likely tokens, "
        "k = ((s - 1) 2^mu / (1 - V^(1 - s)))^(1 / s), s the Zipf exponent of the 100 most likely. "
        "At first mu = 2 tau; after a token mu = mu - eta * (-log2 p'(token) - tau), p' what was drawn "
        "from",
        "Basu et al. 2021, Mirostat: A Neural Text Decoding Algorithm that Directly Controls "
        "Perplexity, arXiv 2007.14966.",
        "mirostat:version=2,tau=5",
        "llama.cpp, koboldcpp mirostat, mirostat_tau, mirostat_eta; text-generation-webui and "
        "ExLlamaV2 version 2 alone; no other truncation may stand beside it",
    ),
    StageSpec("skew", Phase.GATE, SkewParams, "processors.stages.feedback:Skew").with_note(
        "p[i] = c[i]^g - c[i - 1]^g, g = e^s, c the cumulative p from the most likely token on",
        "turboderp 2024, ExLlamaV2, skew sampling.",
        "skew=0.5",
        "ExLlamaV2 skew: the same distribution, there as a power of the random number; Aphrodite sums "
        "in the order of ids",
    ),
    StageSpec("adaptive_p", Phase.GATE, AdaptivePParams, "processors.stages.feedback:AdaptiveP").with_note(
        "x = 5 - 10 u^2 / (1 + u), u = |p - t| / 0.3, t = 2 target - a within [0, 1]; a is the moving "
        "average of p of the drawn tokens, target at first",
        "MrJackSpade 2025, adaptive-p-docs.",
        "adaptive_p=0.3",
        "llama.cpp, koboldcpp, text-generation-webui adaptive_target, adaptive_decay; ExLlamaV3; "
        "it lifts rare tokens, so truncate before it",
    ),
)
