"""Stages that change how flat a row's distribution is: `temperature`; `dynamic_temperature` and `edt`, whose
temperature depends on the entropy; and `smoothing`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Self, TypeVar

from processors.base import Admission, Processor
from processors.later import operations, torch
from processors.params import Note, Params, Phase, param, parameters
from processors.stages.shared import COLDEST, HIGHEST, LOWEST
from processors.stages.thresholds import total_and_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows


@parameters
class TemperatureParams(Params):
    """Divide the logits: above 1 flattens the distribution, below 1 sharpens it; 0 is greedy."""

    temperature: float = param(1.0, "Above 1 flattens the distribution, below 1 sharpens; 0 is greedy.", ge=0)


class Temperature(Processor[TemperatureParams]):
    """x = (x - max(x)) / T. The largest logit becomes 0; finite logits stay finite for any T.

    T = 0 masks all but the first of the largest logits. An unconditionally greedy chain is resolved to a
    greedy draw without this stage, so T = 0 occurs only under a condition.
    """

    name = "temperature"
    phase = Phase.SCALE
    Params = TemperatureParams
    keeps_faults = True
    about = Note(
        "x = x / temperature; at 0 the most likely token is taken",
        "Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines.",
        "temperature=0.7",
        "everyone; before truncation in vLLM and transformers, after it in llama.cpp and mlx-lm",
    )

    example_values = tuple({"temperature": t} for t in (0.1, 0.7, 2.5, 1e-44, 1e30))

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        # The lower bound of T is the smallest normal float32. A smaller T would matter only for logits that
        # differ by less than the float32 spacing near 1.
        temperature = self.columns.exact("temperature", rows).clamp(COLDEST, HIGHEST)
        temperature, peak = temperature.float()[:, None], logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        for part in operations.row_parts(logits):
            cool_(logits[part], peak[part], temperature[part])
        if 0 in self.columns.known("temperature", rows):
            is_greedy = self.columns.exact("temperature", rows) == 0
            first = logits.argmax(1, keepdim=True)  # NaN counts as the largest, so faults stay
            best = logits.gather(1, first)
            logits.masked_fill_(is_greedy[:, None], -torch.inf).scatter_(1, first, best)
        return logits


def cool_(logits: Tensor, peak: Tensor, temperature: float | Tensor) -> Tensor:
    """Replace logits [A, N] by (logits - peak) / temperature, both [A, 1]; finite logits stay finite."""
    least = logits.clamp(max=LOWEST)  # -inf for masked logits, else the lower bound
    logits.sub_(peak).div_(temperature)
    return torch.maximum(logits, least, out=logits)


@parameters
class VaryingParams(Params):
    """Base of temperatures that vary from step to step. Relative values refer to the chain's temperature."""

    @property
    def is_relative(self) -> bool:
        """Whether the values are relative to the temperature of the chain, 1 without one."""
        raise NotImplementedError

    def around(self, temperature: float) -> Self:
        """Return absolute values, given the temperature of the chain."""
        raise NotImplementedError


VaryingP = TypeVar("VaryingP", bound=VaryingParams)


class _Varying(Processor[VaryingP]):
    """x = (x - max(x)) / T with T by row; finite logits stay finite. T = 0 keeps the first maximum."""

    phase = Phase.SCALE
    keeps_faults = True

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        parts = operations.row_parts(logits)
        counts, entropies = [], []
        for part in parts:
            is_left = torch.gt(logits[part], -math.inf, out=torch.empty_like(logits[part]))
            counts.append(is_left.sum(1, keepdim=True).double())
            entropies.append(total_and_entropy(logits[part], peak[part].double())[:, 1:].clamp_(min=0))
        entropy, count = torch.cat(entropies), torch.cat(counts)
        is_choice = count > 1
        heat = torch.where(is_choice, self._temperature(entropy, count, rows), 1.0)
        peak = torch.where(is_choice, peak, 0.0)
        first = logits.argmax(1, keepdim=True) if self._may_freeze(rows) else None
        divisor = heat.clamp(COLDEST, HIGHEST).float()
        for part in parts:
            cool_(logits[part], peak[part], divisor[part])
        is_frozen = heat == 0
        if first is None or (not logits.is_cuda and not bool(is_frozen.any())):
            return logits
        # The first of the largest tokens gets all probability, and finite logits stay finite.
        return torch.where(is_frozen, logits.clamp(max=LOWEST).scatter_(1, first, 0.0), logits)

    def admit(self, slot: int, params: VaryingP, request: Admission) -> None:
        """Store the values; relative ones refer to temperature 1, as the chain has no temperature stage."""
        super().admit(slot, params.around(1.0) if params.is_relative else params, request)

    @abstractmethod
    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        """Return T [A, 1] for entropies and numbers of unmasked tokens [A, 1], all float64."""

    @abstractmethod
    def _may_freeze(self, rows: Rows) -> bool:
        """Whether T may be 0 in some row, without device synchronisation."""


@parameters
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


class DynamicTemperature(_Varying[DynamicTemperatureParams]):
    """T = low + (high - low) * (H / ln n)^exponent, n tokens that are not masked."""

    name = "dynamic_temperature"
    Params = DynamicTemperatureParams
    about = Note(
        "x = x / T, T = min + (max - min) * (H(p) / ln n)^exponent, n tokens that are not masked; with "
        "range the bounds are temperature - range, not below 0, and temperature + range",
        "kalomaze 2023, dynamic temperature for koboldcpp.",
        "dynamic_temperature:min=0.5,max=1.5",
        "llama.cpp dynatemp_range, dynatemp_exponent; text-generation-webui dynatemp_low, dynatemp_high; "
        "koboldcpp dynatemp_range; ExLlamaV2 min_temp, max_temp, behind its truncation",
    )

    example_values = (
        {"min": 0.5, "max": 1.5},
        {"min": 0.0, "max": 2.0, "exponent": 3.0},
        {"min": 1e-44, "max": 1e30, "exponent": 0.0},
        {"min": 0.0, "max": 0.0},
        {"range": 0.4},
        {"range": 7.0, "exponent": 0.5},
    )

    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        low, high = self.columns.exact("min", rows)[:, None], self.columns.exact("max", rows)[:, None]
        share = (entropy / count.log()).clamp_(max=1)
        return low + (high - low) * share.pow(self.columns.exact("exponent", rows)[:, None])

    def _may_freeze(self, rows: Rows) -> bool:
        return 0.0 in self.columns.known("min", rows)


@parameters
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


class Edt(_Varying[EdtParams]):
    """T = t0 * 0.8^(theta / H) (Zhang, Bao and Huang 2024)."""

    name = "edt"
    Params = EdtParams
    about = Note(
        "x = x / T, T = t0 * 0.8^(theta / H(p)), H in nats",
        "Zhang, Bao and Huang 2024, EDT: Improving Large Language Models' Generation by Entropy-based "
        "Dynamic Temperature Sampling, arXiv 2403.14541.",
        "edt=0.1",
        "no other server; the authors' code",
    )

    example_values = (
        {"theta": 0.1},
        {"theta": 1.0, "t0": 0.6},
        {"theta": 1e-300, "t0": 1e30},
        {"theta": 1e300},
    )

    def _temperature(self, entropy: Tensor, count: Tensor, rows: Rows) -> Tensor:
        t0, theta = self.columns.exact("t0", rows)[:, None], self.columns.exact("theta", rows)[:, None]
        return t0 * torch.pow(0.8, theta / entropy)

    def _may_freeze(self, rows: Rows) -> bool:
        return True


@parameters
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


class Smoothing(Processor[SmoothingParams]):
    """x = M - k * factor * d^2 + s * factor * d^3, with M = max(x), d = x - M, in float64.

    k = (3 - curve) / 2 and s = (curve - 1) / 2. For curve from 1 to 3 the order of the tokens is unchanged.
    """

    name = "smoothing"
    phase = Phase.SCALE
    Params = SmoothingParams
    keeps_faults = True
    about = Note(
        "x = M - k * factor * d^2 + s * factor * d^3, M = max(x), d = x - M, k = (3 - curve) / 2, "
        "s = (curve - 1) / 2",
        "kalomaze 2024, quadratic sampling for text-generation-webui.",
        "smoothing=0.3",
        "text-generation-webui, koboldcpp smoothing_factor, smoothing_curve; Aphrodite; ExLlamaV2 "
        "without a curve, in place of the temperature",
    )

    example_values = (
        {"factor": 0.3},
        {"factor": 0.05, "curve": 2.0},
        {"factor": 4.0, "curve": 3.0},
        {"factor": 1e-300},
        {"factor": 1e300, "curve": 1.5},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        factor, curve = (self.columns.exact(name, rows)[:, None] for name in ("factor", "curve"))
        square, cube = (3 - curve) / 2, (curve - 1) / 2
        for part in operations.row_parts(logits):
            some, top = logits[part], peak[part].double()
            below = some.double().sub_(top).clamp_(min=2 * LOWEST)  # keeps 0 * -inf from giving NaN
            slope = below.mul(cube[part]).sub_(square[part])
            bent = below.square_().mul_(factor[part]).mul_(slope).add_(top)
            torch.where(some == -math.inf, some, bent.float().clamp_(min=LOWEST), out=some)
        return logits
