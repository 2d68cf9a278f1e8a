"""Stages of the draw: temperature and how flat the distribution is, and truncation by rank, mass, a
threshold from the row's distribution, the order of the tokens, or chance (xtc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from processors.params import MOST, Params, Phase, StageSpec, param


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
class VaryingParams(Params):
    """Base of temperatures that vary from step to step. Relative values refer to the chain's temperature."""

    @property
    def is_relative(self) -> bool:
        """Whether the values are relative to the temperature of the chain, 1 without one."""
        raise NotImplementedError

    def around(self, temperature: float) -> Self:
        """Return absolute values, given the temperature of the chain."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class DynamicTemperatureParams(VaryingParams):
    """A temperature between two bounds: the closer to uniform the distribution, the higher."""

    min: float | None = param(
        None, "Temperature where one token has all the probability; null takes it from range.", ge=0
    )
    max: float | None = param(
        None, "Temperature where all tokens are equally likely; null takes it from range.", ge=0
    )
    exponent: float = param(
        1.0, "Power of the entropy between 0 and 1; above 1 the temperature rises later.", ge=0
    )
    range: float | None = param(
        None, "Instead of min and max: so far below and above the chain's temperature, or below and above 1.",
        ge=0,
    )  # fmt: skip

    def is_off(self) -> bool:
        """Whether there are no bounds; a range of 0 equals a constant temperature."""
        return self.min is None and self.max is None and not self.range

    @property
    def is_relative(self) -> bool:
        return self.range is not None and self.min is None and self.max is None

    def around(self, temperature: float) -> Self:
        """Return the bounds around this temperature; none is below 0."""
        reach = self.range or 0.0
        return self.replace(range=None, min=max(0.0, temperature - reach), max=temperature + reach)


@dataclass(frozen=True, slots=True)
class EdtParams(VaryingParams):
    """A temperature that falls with the entropy of the distribution (Zhang, Bao and Huang 2024)."""

    theta: float = param(0.0, "How fast the temperature falls where the entropy is small; 0 is off.", ge=0)
    t0: float | None = param(
        None, "Temperature that a large entropy comes close to; null is the chain's, or 1.", gt=0
    )

    @property
    def is_relative(self) -> bool:
        return self.t0 is None

    def around(self, temperature: float) -> Self:
        return self.replace(t0=temperature)


@dataclass(frozen=True, slots=True)
class SmoothingParams(Params):
    """Bring logits near the largest one closer to it, and move the others away."""

    factor: float = param(
        0.0, "Strength; with curve 1 a logit that is 1 / factor below the largest one stays; 0 is off.", ge=0
    )
    curve: float = param(
        1.0, "How fast unlikely tokens fall: 1 with the square of the distance, up to 3 with its cube.",
        ge=1, le=3,
        hint="Below 1 the least likely tokens would become the most likely ones, above 3 those next to the "
        "most likely one would.",
    )  # fmt: skip


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
        "inclusive", "Their mass reaches p (inclusive), exceeds it (strict) or stays below it (exclusive)."
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


@dataclass(frozen=True, slots=True)
class XtcParams(Params):
    """Exclude the top choices: of the likely tokens only the least likely stays (Weidmann 2024)."""

    probability: float = param(0.0, "Exclude the top choices with this probability; 0 is never.", ge=0, le=1)
    threshold: float = param(
        0.1, "Tokens at least this probable are top choices; all but the least likely of them go.",
        gt=0, le=1, hint="A probability of 0 switches it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param(
        ("eos", "newline"),
        "Never excluded: eos, stop, special, newline, ids, texts of one token.",
        ge=0,
        le=MOST,
    )
    on_exempt: Literal["keep", "skip", "uncount"] = param(
        "keep",
        "Exempt tokens are top choices that stay (keep) or none (uncount); skip: nothing goes if one would.",
    )
    compare: Literal["ge", "gt"] = param("ge", "A top choice reaches the threshold (ge) or exceeds it (gt).")
    ties: Literal["cut", "keep"] = param(
        "cut", "Equally likely top choices at the end: cut keeps the lowest id, keep keeps all."
    )
    mode: Literal["roll", "expected"] = param(
        "roll", "Roll for each token, or give each token the probability that it has on average over rolls."
    )
    keep: int = param(1, "Exclude nothing if fewer than this many tokens would be left.", ge=1, le=MOST)

    def can_act(self) -> bool:
        """Whether the threshold allows two top choices: their probabilities sum to at most 1."""
        return self.threshold < 0.5 or (self.threshold == 0.5 and self.compare == "ge")


TRUNCATION = (
    StageSpec(
        "temperature", Phase.SCALE, TemperatureParams, "processors.stages.truncation:Temperature"
    ).with_note(
        "x = x / temperature; at 0 the most likely token is taken",
        "Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines.",
        "temperature=0.7",
        "everyone; before truncation in vLLM and transformers, after it in llama.cpp and mlx-lm",
    ),
    StageSpec("min_p", Phase.TRUNCATE, MinPParams, "processors.stages.truncation:MinP").with_note(
        "x[i] = -inf where p[i] < p * max(p)",
        "Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, arXiv 2407.01082.",
        "min_p=0.05",
        "transformers, vLLM, SGLang, mlx-lm min_p; llama.cpp --min-p",
    ),
    StageSpec("top_k", Phase.TRUNCATE, TopKParams, "processors.stages.truncation:TopK").with_note(
        "x[i] = -inf where x[i] is not among the k largest",
        "Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, arXiv 1805.04833.",
        "top_k:k=40,ties=keep",
        "everyone; ties stay in transformers and are cut in llama.cpp; in vLLM the back end decides",
    ),
    StageSpec("top_p", Phase.TRUNCATE, TopPParams, "processors.stages.truncation:TopP").with_note(
        "keep the most likely tokens, in order, until their p sums up to p",
        "Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, arXiv 1904.09751.",
        "top_p=0.9",
        "everyone; the token that crosses p stays, but not in ExLlamaV2",
    ),
    StageSpec(
        "dynamic_temperature",
        Phase.SCALE,
        DynamicTemperatureParams,
        "processors.stages.thresholds:DynamicTemperature",
    ).with_note(
        "x = x / T, T = min + (max - min) * (H(p) / ln n)^exponent, n tokens that are not masked; with "
        "range the bounds are temperature - range, not below 0, and temperature + range",
        "kalomaze 2023, dynamic temperature for koboldcpp.",
        "dynamic_temperature:min=0.5,max=1.5",
        "llama.cpp dynatemp_range, dynatemp_exponent; text-generation-webui dynatemp_low, dynatemp_high; "
        "koboldcpp dynatemp_range; ExLlamaV2 min_temp, max_temp, behind its truncation",
    ),
    StageSpec("edt", Phase.SCALE, EdtParams, "processors.stages.thresholds:Edt").with_note(
        "x = x / T, T = t0 * 0.8^(theta / H(p)), H in nats",
        "Zhang, Bao and Huang 2024, EDT: Improving Large Language Models' Generation by Entropy-based "
        "Dynamic Temperature Sampling, arXiv 2403.14541.",
        "edt=0.1",
        "no other server; the authors' code",
    ),
    StageSpec("smoothing", Phase.SCALE, SmoothingParams, "processors.stages.thresholds:Smoothing").with_note(
        "x = M - k * factor * d^2 + s * factor * d^3, M = max(x), d = x - M, k = (3 - curve) / 2, "
        "s = (curve - 1) / 2",
        "kalomaze 2024, quadratic sampling for text-generation-webui.",
        "smoothing=0.3",
        "text-generation-webui, koboldcpp smoothing_factor, smoothing_curve; Aphrodite; ExLlamaV2 "
        "without a curve, in place of the temperature",
    ),
    StageSpec(
        "top_n_sigma", Phase.TRUNCATE, TopNSigmaParams, "processors.stages.thresholds:TopNSigma"
    ).with_note(
        "x[i] = -inf where x[i] < max(x) - n * sigma(x)",
        "Tang et al. 2024, Top-n-sigma: Not All Logits Are You Need, arXiv 2411.07641.",
        "top_n_sigma=1",
        "llama.cpp --top-n-sigma, koboldcpp nsigma; Aphrodite and text-generation-webui divide by V - 1",
    ),
    StageSpec("epsilon", Phase.TRUNCATE, EpsilonParams, "processors.stages.thresholds:Epsilon").with_note(
        "x[i] = -inf where p[i] < min(cutoff, max(p))",
        "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
        "arXiv 2210.15191.",
        "epsilon=3e-4",
        "transformers epsilon_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
    ),
    StageSpec("eta", Phase.TRUNCATE, EtaParams, "processors.stages.thresholds:Eta").with_note(
        "x[i] = -inf where p[i] < min(cutoff, sqrt(cutoff) * exp(-H(p)), max(p))",
        "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
        "arXiv 2210.15191.",
        "eta=3e-4",
        "transformers eta_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
    ),
    StageSpec("top_a", Phase.TRUNCATE, TopAParams, "processors.stages.thresholds:TopA").with_note(
        "x[i] = -inf where p[i] < a * max(p)^2",
        "BlinkDL 2022, RWKV-LM, top-a sampling.",
        "top_a=0.2",
        "text-generation-webui, koboldcpp and ExLlamaV2 top_a",
    ),
    StageSpec("p_less", Phase.TRUNCATE, PLessParams, "processors.stages.thresholds:PLess").with_note(
        "x[i] = -inf where p[i] < min(S, max(p)), S = (sum p^order)^(1 / (order - 1)); with norm "
        "(V S - 1) / (V - 1)",
        "Tan et al. 2025, p-less Sampling, arXiv 2509.23234.",
        "p_less=2",
        "proposed for vLLM and llama.cpp as p_less",
    ),
    StageSpec("top_h", Phase.TRUNCATE, TopHParams, "processors.stages.thresholds:TopH").with_note(
        "keep the most likely tokens, in order, while the sum of t = -r ln r is at most h * sum(t); r is "
        "the softmax of the candidates",
        "Potraghloo, Azizi, Kundu and Pedram 2025, Top-H Decoding, arXiv 2509.02510.",
        "top_h=0.4",
        "transformers top_h, with 100 candidates; the paper's code does not renormalise",
    ),
    StageSpec("min_k", Phase.TRUNCATE, MinKParams, "processors.stages.thresholds:MinK").with_note(
        "x[i] = -inf where x[i] < l[k], l the sorted logits, R = l[1] - l[V] + 1e-8, "
        "k = max(argmax((l[j] - l[j+1]) / (j R)), floor(tau / R), 1)",
        "Ding et al. 2026, Min-k Sampling, arXiv 2604.11012.",
        "min_k=3",
        "proposed for vLLM as min_k",
    ),
    StageSpec("typical", Phase.TRUNCATE, TypicalParams, "processors.stages.thresholds:Typical").with_note(
        "keep the tokens, by rising |-ln p[i] - H(p)|, until their p sums up to p",
        "Meister, Pimentel, Wiher and Cotterell 2022, Locally Typical Sampling, arXiv 2202.00666.",
        "typical:p=0.95,ties=keep",
        "transformers typical_p keeps ties; llama.cpp --typical and koboldcpp are strict; ExLlamaV2 and "
        "Aphrodite exclusive",
    ),
    StageSpec("tfs", Phase.TRUNCATE, TfsParams, "processors.stages.thresholds:Tfs").with_note(
        "keep 1 + #{c <= z} of the sorted p, c the running sum of |p[j] - 2 p[j+1] + p[j+2]| divided by "
        "the whole sum; kobold keeps max(1, #)",
        "Phénix and Egan 2019, Tail Free Sampling.",
        "tfs=0.95",
        "text-generation-webui, ExLlamaV2 and Aphrodite tfs; koboldcpp tfs keeps one fewer",
    ),
    StageSpec("xtc", Phase.GATE, XtcParams, "processors.stages.truncation:Xtc").with_note(
        "with the given probability x[i] = -inf where p[i] >= threshold, but the least likely of these",
        "Weidmann 2024, Exclude Top Choices, text-generation-webui PR 6335.",
        "xtc:probability=0.5,threshold=0.1",
        "llama.cpp and koboldcpp exempt nothing; text-generation-webui skips the step; mlx-lm "
        "compares with gt and keeps ties; ExLlamaV2 and V3 are expected and uncount",
    ),
)
