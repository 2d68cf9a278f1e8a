"""Truncation by the shape of a row's distribution: by a threshold (`top_n_sigma`, `epsilon`, `eta`, `top_a`,
`p_less`) or by the order of the tokens (`top_h`, `min_k`, `typical`, `tfs`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from processors.base import P, Processor
from processors.later import operations, torch
from processors.params import MOST, Note, Params, param, parameters
from processors.stages.shared import LOWEST
from processors.stages.truncation import (
    MinP,
    TopK,
    TopP,
    Truncation,
    best,
    by_parts,
    cut,
    enough_best,
    keep_above,
    mass,
    of_row,
    rounded_up,
    settled,
    total_mass,
)

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows

_FAR = -800.0  # exp of it is negligible beside 1 in float64


class _Threshold(Truncation[P]):
    """Base of stages that keep the logits >= a threshold, and always the largest ones."""

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        threshold = torch.minimum(peak + self._below_peak(logits, peak, rows), peak)
        return keep_above(logits, rounded_up(threshold), self.columns, rows)

    @abstractmethod
    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        """Return threshold - peak [A, 1] float64; NaN keeps all."""


@parameters
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


class TopNSigma(_Threshold[TopNSigmaParams]):
    """Keep logits within n standard deviations of the largest one (Tang et al. 2024)."""

    name = "top_n_sigma"
    Params = TopNSigmaParams
    about = Note(
        "x[i] = -inf where x[i] < max(x) - n * sigma(x)",
        "Tang et al. 2024, Top-n-sigma: Not All Logits Are You Need, arXiv 2411.07641.",
        "top_n_sigma=1",
        "llama.cpp --top-n-sigma, koboldcpp nsigma; Aphrodite and text-generation-webui divide by V - 1",
    )

    example_values = (
        *({"n": n} for n in (1e-3, 0.7, 1.0, 3.0, 1e30)),
        {"n": 1.0, "std": "sample"},
        {"n": 0.1, "keep": 9},
    )

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        is_sample = self.columns.gather("std", rows)[:, None] == 1  # population 0, sample 1
        return -self.columns.exact("n", rows)[:, None] * by_parts(_deviation, logits, peak, is_sample)


@parameters
class EpsilonParams(Params):
    """Keep tokens with at least a probability (Hewitt, Manning and Liang 2022)."""

    cutoff: float = param(0.0, "Keep tokens at least this probable; 0 keeps all.", ge=0, lt=1)
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class Epsilon(_Threshold[EpsilonParams]):
    """Keep tokens with p >= cutoff (Hewitt, Manning and Liang 2022)."""

    name = "epsilon"
    Params = EpsilonParams
    about = Note(
        "x[i] = -inf where p[i] < min(cutoff, max(p))",
        "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
        "arXiv 2210.15191.",
        "epsilon=3e-4",
        "transformers epsilon_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
    )

    example_values = (
        *({"cutoff": cutoff} for cutoff in (1e-300, 3e-4, 0.02, 0.9)),
        {"cutoff": 0.5, "keep": 9},
    )

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total = by_parts(total_mass, logits, peak)
        return self.columns.exact("cutoff", rows)[:, None].log() + total.log()


@parameters
class EtaParams(Params):
    """As epsilon, with a lower cutoff where the distribution is flat (Hewitt, Manning and Liang 2022)."""

    cutoff: float = param(
        0.0, "Keep tokens at least as probable as the smaller of this and its root times exp(-entropy).",
        ge=0, lt=1,
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class Eta(_Threshold[EtaParams]):
    """Keep tokens with p >= min(cutoff, sqrt(cutoff) exp(-H)) (Hewitt, Manning and Liang 2022)."""

    name = "eta"
    Params = EtaParams
    about = Note(
        "x[i] = -inf where p[i] < min(cutoff, sqrt(cutoff) * exp(-H(p)), max(p))",
        "Hewitt, Manning and Liang 2022, Truncation Sampling as Language Model Desmoothing, "
        "arXiv 2210.15191.",
        "eta=3e-4",
        "transformers eta_cutoff; text-generation-webui and Aphrodite in units of 1e-4",
    )

    example_values = (
        *({"cutoff": cutoff} for cutoff in (1e-300, 3e-4, 0.02, 0.9)),
        {"cutoff": 0.5, "keep": 9},
    )

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total, entropy = by_parts(total_and_entropy, logits, peak)[:, :, None].unbind(1)
        cutoff = self.columns.exact("cutoff", rows)[:, None].log()
        return torch.minimum(cutoff, cutoff / 2 - entropy) + total.log()


@parameters
class TopAParams(Params):
    """Keep tokens at least as probable as a times the square of the largest probability."""

    a: float = param(
        0.0, "Keep tokens at least as probable as a times the largest probability squared; 0 keeps all.",
        ge=0, le=1,
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class TopA(_Threshold[TopAParams]):
    """Keep tokens with p >= a max(p)^2."""

    name = "top_a"
    Params = TopAParams
    about = Note(
        "x[i] = -inf where p[i] < a * max(p)^2",
        "BlinkDL 2022, RWKV-LM, top-a sampling.",
        "top_a=0.2",
        "text-generation-webui, koboldcpp and ExLlamaV2 top_a",
    )

    example_values = (*({"a": a} for a in (1e-300, 0.2, 1.0)), {"a": 1.0, "keep": 9})

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        total = by_parts(total_mass, logits, peak)
        return self.columns.exact("a", rows)[:, None].log() - total.log()


@parameters
class PLessParams(Params):
    """Keep tokens at least as probable as a drawn token is on average (Tan et al. 2025)."""

    order: float = param(
        1.0, "Keep tokens above the mean probability of this order; 2 is that of a drawn token, 1 keeps all.",
        ge=1, le=100,
    )  # fmt: skip
    norm: bool = param(False, "Subtract from the mean what a flat distribution has.")
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class PLess(_Threshold[PLessParams]):
    """Keep tokens at least as probable as a drawn token is on average (Tan et al. 2025)."""

    name = "p_less"
    Params = PLessParams
    about = Note(
        "x[i] = -inf where p[i] < min(S, max(p)), S = (sum p^order)^(1 / (order - 1)); with norm "
        "(V S - 1) / (V - 1)",
        "Tan et al. 2025, p-less Sampling, arXiv 2509.23234.",
        "p_less=2",
        "proposed for vLLM and llama.cpp as p_less",
    )

    example_values = (
        *({"order": order} for order in (1.01, 2.0, 3.0, 100.0)),
        {"order": 2.0, "norm": True},
        {"order": 2.0, "keep": 9},
    )

    def _below_peak(self, logits: Tensor, peak: Tensor, rows: Rows) -> Tensor:
        order = self.columns.exact("order", rows)[:, None]
        sums = partial(_sums, is_square=self.columns.known("order", rows) == {2.0})
        total, powers, count = by_parts(sums, logits, peak, order)[:, :, None].unbind(1)
        mean = ((powers.log() - order * total.log()) / (order - 1)).exp()
        normed = (count * mean - 1).clamp_(min=0) / (count - 1)
        is_normed = self.columns.gather("norm", rows)[:, None] == 1
        return torch.where(is_normed, normed, mean).log() + total.log()


def _deviation(logits: Tensor, peak: Tensor, is_sample: Tensor) -> Tensor:
    is_in = logits > -torch.inf
    count = is_in.sum(1, keepdim=True)
    below = torch.where(is_in, logits.double() - peak, 0.0)
    below -= operations.row_sums(below) / count
    squares = operations.row_sums(torch.where(is_in, below, 0.0).square_())
    return (squares / (count - is_sample.long())).sqrt_()


def total_and_entropy(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the total mass and the entropy in nats [A, 2], for peaks [A, 1] float64."""
    masses = mass(logits, peak)
    total = operations.row_sums(masses)
    weighted = operations.row_sums(masses.mul_((logits.double() - peak).clamp_(min=_FAR)))
    return torch.cat([total, total.log() - weighted / total], dim=1)


def _sums(logits: Tensor, peak: Tensor, order: Tensor, *, is_square: bool) -> Tensor:
    """Return the sums of m and of m^order, and the number of finite logits [A, 3].

    `is_square`: all orders are 2. The bits are the same, in two thirds of the time.
    """
    masses = mass(logits, peak)
    total, count = operations.row_sums(masses), (logits > -torch.inf).sum(1, keepdim=True)
    powers = masses.square_() if is_square else torch.where(order == 2, masses.square(), masses.pow(order))
    return torch.cat([total, operations.row_sums(powers), count.double()], dim=1)


_STEEP = 1e-8  # added to the range of the logits by min-k


@parameters
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


class TopH(Truncation[TopHParams]):
    """Keep the most likely tokens whose entropy is at most a share of the whole (Potraghloo et al. 2025)."""

    name = "top_h"
    Params = TopHParams
    about = Note(
        "keep the most likely tokens, in order, while the sum of t = -r ln r is at most h * sum(t); r is "
        "the softmax of the candidates",
        "Potraghloo, Azizi, Kundu and Pedram 2025, Top-H Decoding, arXiv 2509.02510.",
        "top_h=0.4",
        "transformers top_h, with 100 candidates; the paper's code does not renormalise",
    )

    example_values = (
        *({"h": h} for h in (1e-300, 0.4, 0.9, 1.0)),
        {"h": 0.6, "candidates": 5},
        {"h": 0.6, "candidates": 5, "renormalise": False},
        {"h": 0.1, "candidates": 2, "keep": 9},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts the largest `candidates` of the batch."""
        ranked = best(logits, max(self.columns.known("candidates", rows) | self.columns.known("keep", rows)))
        peak = ranked[:, :1].clamp(min=LOWEST).double()
        is_candidate = _places(ranked) < self.columns.gather("candidates", rows)[:, None]
        masses = mass(ranked, peak).masked_fill_(~is_candidate, 0.0)
        total = operations.row_sums(masses)
        if False in self.columns.known("renormalise", rows):
            is_renormalised = self.columns.gather("renormalise", rows)[:, None]
            total = torch.where(is_renormalised, total, of_row(total_mass, logits, ranked, peak))
        sums = operations.row_cumsums(masses.div_(total).xlogy(masses).neg_())
        is_within = (sums <= sums[:, -1:] * self.columns.exact("h", rows)[:, None]) & (masses > 0)
        count = is_within.sum(1, keepdim=True).maximum(self.columns.gather("keep", rows)[:, None])
        return operations.drop_below(logits, *cut(ranked, count))


@parameters
class MinKParams(Params):
    """Keep the tokens before the steepest fall of the sorted logits (Ding et al. 2026)."""

    tau: float | None = param(
        None, "Keep tau tokens per unit of the range of the logits, or all before their steepest fall.", ge=0,
        hint="null means off; 0 goes by the steepest fall alone.",
    )  # fmt: skip
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class MinK(Truncation[MinKParams]):
    """Keep the tokens before the steepest fall of the sorted logits (Ding et al. 2026)."""

    name = "min_k"
    Params = MinKParams
    about = Note(
        "x[i] = -inf where x[i] < l[k], l the sorted logits, R = l[1] - l[V] + 1e-8, "
        "k = max(argmax((l[j] - l[j+1]) / (j R)), floor(tau / R), 1)",
        "Ding et al. 2026, Min-k Sampling, arXiv 2604.11012.",
        "min_k=3",
        "proposed for vLLM as min_k",
    )

    example_values = (*({"tau": tau} for tau in (0.0, 3.0, 60.0, 1e300)), {"tau": 0.0, "keep": 9})

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ranked = enough_best(logits)
        least = of_row(_least, logits, ranked).double()
        (threshold,) = settled(_cliff, logits, ranked, least, self.columns.exact("tau", rows)[:, None])
        return keep_above(logits, threshold, self.columns, rows)


@parameters
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


class Typical(Truncation[TypicalParams]):
    """Keep tokens whose surprise is closest to the expected one (Meister et al. 2022).

    With d = x - M and mean(d) under p: -ln p - H = mean(d) - d, so the closest tokens are an interval of
    logits.
    """

    name = "typical"
    Params = TypicalParams
    about = Note(
        "keep the tokens, by rising |-ln p[i] - H(p)|, until their p sums up to p",
        "Meister, Pimentel, Wiher and Cotterell 2022, Locally Typical Sampling, arXiv 2202.00666.",
        "typical:p=0.95,ties=keep",
        "transformers typical_p keeps ties; llama.cpp --typical and koboldcpp are strict; ExLlamaV2 and "
        "Aphrodite exclusive",
    )

    example_values = (
        *({"p": p} for p in (1e-300, 0.2, 0.95, 0.9999)),
        {"p": 0.5, "boundary": "strict"},
        {"p": 0.5, "boundary": "exclusive"},
        {"p": 0.3, "ties": "keep"},
        {"p": 0.1, "keep": 9},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = enough_best(logits)
        total, entropy = of_row(total_and_entropy, logits, ranked, peak)[:, :, None].unbind(1)
        names = ("boundary", "ties", "keep")
        options = (self.columns.gather(name, rows)[:, None] for name in names)
        bound = self.columns.exact("p", rows)[:, None] * total
        low, low_room, high, high_room = settled(
            _closest, logits, ranked, peak, total.log() - entropy, bound, *options
        )
        return operations.drop_above(operations.drop_below(logits, low, low_room), high, high_room)


@parameters
class TfsParams(Params):
    """Cut the tail where the curve of the sorted probabilities is flat (Phénix and Egan 2019)."""

    z: float = param(
        1.0, "Keep the most likely tokens up to a share z of the curvature of p; 1 keeps all.", ge=0, le=1
    )
    style: Literal["centred", "kobold"] = param(
        "centred", "A bend belongs to the token in its middle (centred) or to the one before it (kobold)."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class Tfs(Truncation[TfsParams]):
    """Cut the tail where the curve of the sorted probabilities is flat (Phénix and Egan 2019)."""

    name = "tfs"
    Params = TfsParams
    about = Note(
        "keep 1 + #{c <= z} of the sorted p, c the running sum of |p[j] - 2 p[j+1] + p[j+2]| divided by "
        "the whole sum; kobold keeps max(1, #)",
        "Phénix and Egan 2019, Tail Free Sampling.",
        "tfs=0.95",
        "text-generation-webui, ExLlamaV2 and Aphrodite tfs; koboldcpp tfs keeps one fewer",
    )

    example_values = (
        *({"z": z} for z in (0.0, 0.3, 0.95)),
        {"z": 0.9, "style": "kobold"},
        {"z": 0.1, "keep": 9},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        if logits.shape[1] < 3:
            return logits
        z = self.columns.exact("z", rows)[:, None]
        is_kobold = self.columns.gather("style", rows)[:, None] == 1  # centred 0, kobold 1
        keep = self.columns.gather("keep", rows)[:, None]
        return operations.drop_below(logits, *settled(_bent, logits, enough_best(logits), z, is_kobold, keep))


TRUNCATING: tuple[type[Processor[Any]], ...] = (  # in default order
    TopNSigma,  # first: its standard deviation is over all logits
    TopH,
    MinK,
    MinP,
    TopK,
    TopP,
    Typical,
    Epsilon,
    Eta,
    Tfs,
    TopA,
    PLess,
)


def _places(ranked: Tensor) -> Tensor:
    return torch.arange(ranked.shape[1], device=ranked.device)


def _least(logits: Tensor) -> Tensor:
    return torch.where(logits > -math.inf, logits, math.inf).amin(1, keepdim=True)


def _cliff(ranked: Tensor, least: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether the threshold of min-k is certain, and the threshold [A, 1].

    least and tau [A, 1]. Logits not in `ranked` [A, N] lie between its last value and `least`, which bounds
    their steepest fall.
    """
    values, rank = ranked.double(), _places(ranked) + 1
    extent = values[:, :1] - least + _STEEP
    after = torch.nn.functional.pad(values[:, 1:], (0, 1), value=-math.inf)
    falls = torch.where(after > -math.inf, (values - after) / (rank * extent), -1.0)
    steepest, at = falls.max(1, keepdim=True)
    size = ranked.shape[1]
    share = (tau / extent).nan_to_num(0.0).clamp(max=size + 1).long()
    count = torch.maximum(at + 1, share)
    behind = (values[:, -1:] - least) / (size * extent)
    is_certain = (steepest >= behind) & (count <= size) | (ranked[:, -1:] == -math.inf)
    return is_certain, cut(ranked, count)[0]


def _closest(
    ranked: Tensor, peak: Tensor, mean: Tensor, bound: Tensor, boundary: Tensor, ties: Tensor, keep: Tensor
) -> tuple[Tensor, ...]:
    """Return whether the interval lies within `ranked` [A, N]; its lowest logit, room, highest logit, room.

    All are [A, 1]; a room is the number of ties that stay. `boundary`: 0 inclusive, 1 strict, 2 exclusive;
    `ties`: 0 cut, 1 keep. Tokens are ordered by distance from the mean, ties by probability.
    """
    size, below = ranked.shape[1], ranked.double().sub_(peak)
    distance = (below - mean).abs_()
    order = operations.stable_order(distance)
    distance, values = distance.gather(1, order), ranked.gather(1, order)
    sums = operations.row_cumsums(mass(values, peak))
    under = (sums < bound).sum(1, keepdim=True)
    count = torch.where(boundary == 1, (sums <= bound).sum(1, keepdim=True), under) + (boundary != 2)
    limit = distance.gather(1, count.clamp(min=1, max=size) - 1)
    keeps_ties = ties == 1
    count = torch.where(keeps_ties, (distance <= limit).sum(1, keepdim=True), count).maximum(keep)
    last = count.clamp(max=size) - 1
    limit, value = distance.gather(1, last), values.gather(1, last)
    is_in = _places(ranked) <= last
    low = torch.where(is_in, values, math.inf).amin(1, keepdim=True)
    high = torch.where(is_in, values, -math.inf).amax(1, keepdim=True)
    taken = (is_in & (values == value)).sum(1, keepdim=True)
    everything = torch.iinfo(taken.dtype).max
    low_room, high_room = (torch.where(value == end, taken, everything) for end in (low, high))
    # Logits not in `ranked` are farther from the mean than its last value, if that is below the mean.
    farthest = below[:, -1:]
    reach = (farthest - mean).abs()
    is_certain = (count <= size) & ~(farthest > mean) & ~((limit > reach) | (keeps_ties & (limit == reach)))
    return is_certain | (farthest == -math.inf), low, low_room, high, high_room


def _bent(ranked: Tensor, z: Tensor, is_kobold: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether the cut of tail-free sampling is certain, its threshold and its room [A, 1].

    z, is_kobold, keep [A, 1]. The curvature after `ranked` [A, N] is at most the sum of its last two masses.
    """
    masses = mass(ranked, ranked[:, :1].clamp(min=LOWEST).double())
    bends = (masses[:, :-2] - 2 * masses[:, 1:-1] + masses[:, 2:]).abs_()
    sums = operations.row_cumsums(bends.masked_fill_(ranked[:, 2:] == -math.inf, 0.0))
    total = sums[:, -1:]
    behind = masses[:, -2:].sum(1, keepdim=True)
    count = (sums <= z * total).sum(1, keepdim=True)
    most_count = (sums <= z * (total + behind)).sum(1, keepdim=True)
    is_bent = total > 0
    kept = torch.where(is_kobold, count, count + 1).maximum(keep)
    kept = torch.where(is_bent, kept, ranked.shape[1])
    is_certain = is_bent & (count == most_count) & (kept <= ranked.shape[1])
    return is_certain | (ranked[:, -1:] == -math.inf), *cut(ranked, kept)
