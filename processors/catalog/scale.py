"""Stages that change how flat the distribution is: dynamic_temperature, edt and smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import Params, param

__all__ = ["SCALE", "DynamicTemperatureParams", "EdtParams", "SmoothingParams", "VaryingParams"]


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
        """Whether the bounds are relative to the temperature of the chain."""
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
        """Whether t0 is taken from the temperature of the chain."""
        return self.t0 is None

    def around(self, temperature: float) -> Self:
        """Return the values with this temperature as t0."""
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


SCALE: tuple[StageSpec, ...] = (
    StageSpec(
        "dynamic_temperature",
        Phase.SCALE,
        DynamicTemperatureParams,
        "processors.stages.scale:DynamicTemperature",
        note=Note(
            "x = x / T, T = min + (max - min) * (H(p) / ln n)^exponent, n tokens that are not masked; with "
            "range the bounds are temperature - range, not below 0, and temperature + range",
            "kalomaze 2023, dynamic temperature for koboldcpp.",
            "dynamic_temperature:min=0.5,max=1.5",
            "llama.cpp dynatemp_range, dynatemp_exponent; text-generation-webui dynatemp_low, dynatemp_high; "
            "koboldcpp dynatemp_range; ExLlamaV2 min_temp, max_temp, behind its truncation",
        ),
    ),
    StageSpec(
        "edt",
        Phase.SCALE,
        EdtParams,
        "processors.stages.scale:Edt",
        note=Note(
            "x = x / T, T = t0 * 0.8^(theta / H(p)), H in nats",
            "Zhang, Bao and Huang 2024, EDT: Improving Large Language Models' Generation by Entropy-based "
            "Dynamic Temperature Sampling, arXiv 2403.14541.",
            "edt=0.1",
            "no other server; the authors' code",
        ),
    ),
    StageSpec(
        "smoothing",
        Phase.SCALE,
        SmoothingParams,
        "processors.stages.scale:Smoothing",
        note=Note(
            "x = M - k * factor * d^2 + s * factor * d^3, M = max(x), d = x - M, k = (3 - curve) / 2, "
            "s = (curve - 1) / 2",
            "kalomaze 2024, quadratic sampling for text-generation-webui.",
            "smoothing=0.3",
            "text-generation-webui, koboldcpp smoothing_factor, smoothing_curve; Aphrodite; ExLlamaV2 "
            "without a curve, in place of the temperature",
        ),
    ),
)
