"""Rotary position embeddings: frequencies by kind, and tables of cosines and sines.

Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), LongRoPE (arXiv 2402.13753), Llama 3.1.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gencli.models.decoder.spec import RopeSpec, Unsupported

__all__ = ["RopeTable", "frequencies", "rotate"]


def frequencies(rope: RopeSpec, *, is_long: bool = False) -> tuple[Tensor, float]:
    """Return the angles per position [width / 2], and the factor of cosines and sines.

    `is_long` takes the frequencies for texts beyond the switch of a long rope.
    """
    exponents = torch.arange(0, rope.width, 2, dtype=torch.int64).float() / rope.width
    plain = 1.0 / (rope.theta**exponents)
    values = rope.values
    if rope.kind == "default":
        return plain, 1.0
    if rope.kind == "linear":
        return plain / values["factor"], 1.0
    if rope.kind == "factors":
        return plain / torch.tensor(values["factors"], dtype=torch.float32), 1.0
    if rope.kind == "llama3":
        return _llama3(plain, values), 1.0
    if rope.kind == "yarn":
        return _yarn(rope)
    if rope.kind == "longrope":
        factors = torch.tensor(values["long_factor" if is_long else "short_factor"], dtype=torch.float32)
        return 1.0 / (factors * rope.theta**exponents), _long_scale(rope)
    raise Unsupported(f"the rotary embedding {rope.kind!r} is not one of the decoder")


def _llama3(plain: Tensor, values: Any) -> Tensor:
    """Divide low frequencies by the factor, keep high ones, and blend between the two."""
    factor, context = values["factor"], values["original_max_position_embeddings"]
    low, high = values["low_freq_factor"], values["high_freq_factor"]
    wavelength = 2 * math.pi / plain
    scaled = torch.where(wavelength > context / low, plain / factor, plain)
    share = (context / wavelength - low) / (high - low)
    blended = (1 - share) * scaled / factor + share * scaled
    is_between = (wavelength >= context / high) & (wavelength <= context / low)
    return torch.where(is_between, blended, scaled)


def _yarn(rope: RopeSpec) -> tuple[Tensor, float]:
    values, width = rope.values, rope.width
    original = values["original_max_position_embeddings"]
    factor = values.get("factor") or rope.context / original

    def dimension(rotations: float) -> float:
        return width * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(values.get("beta_fast") or 32), dimension(values.get("beta_slow") or 1)
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(width // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    spread = rope.theta ** (torch.arange(0, width, 2).float() / width)
    keep = 1 - ramp
    angles = 1.0 / (factor * spread) * (1 - keep) + 1.0 / spread * keep
    scale = values.get("attention_factor")
    if scale is None:
        one, all_dims = values.get("mscale"), values.get("mscale_all_dim")
        scale = _magnitude(factor, one) / _magnitude(factor, all_dims) if one and all_dims else None
    return angles, float(_magnitude(factor, 1.0) if scale is None else scale)


def _magnitude(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _long_scale(rope: RopeSpec) -> float:
    values = rope.values
    if values.get("attention_factor") is not None:
        return float(values["attention_factor"])
    original = values["original_max_position_embeddings"]
    factor = values.get("factor") or rope.context / original
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


class RopeTable:
    """Cosines and signed sines of all positions so far, [F, P, width]; F is 2 for a long rope, else 1."""

    def __init__(self, rope: RopeSpec, dtype: torch.dtype, device: torch.device) -> None:
        versions = [frequencies(rope, is_long=is_long) for is_long in (False, *(True for _ in rope.switches))]
        self._angles = torch.stack([angles for angles, _ in versions]).to(device)
        self._scale, self._dtype = versions[0][1], dtype
        self._cos = self._sin = torch.empty(len(versions), 0, rope.width, dtype=dtype, device=device)

    def rows(self, positions: Tensor, factors: Tensor | None, end: int) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines [N, 1, width] of `positions` [N], all below `end`.

        `factors` [N] is the number of the frequencies of each position; None is 0 for all.
        """
        self.reserve(end)
        index = (0 if factors is None else factors, positions)
        return self._cos[index][:, None], self._sin[index][:, None]

    def reserve(self, end: int) -> Tensor:
        """Return the cosines, of all positions below `end` at least: another tensor after a growth."""
        if end > self._cos.shape[1]:
            self._extend(max(end, 2 * self._cos.shape[1], 256))
        return self._cos

    def _extend(self, length: int) -> None:
        positions = torch.arange(length, device=self._angles.device, dtype=torch.float32)
        angles = positions[None, :, None] * self._angles[:, None]
        angles = torch.cat([angles, angles], -1)
        sines = angles.sin() * self._scale
        sines[..., : sines.shape[-1] // 2].neg_()  # the first half of a head takes minus the second
        self._cos = (angles.cos() * self._scale).to(self._dtype)
        self._sin = sines.to(self._dtype)


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate `states` [N, heads, D] in place: x * cos + swap(x) * sin, on the first width values of a head.

    swap exchanges the halves of those values. `cos` and `sin` [N, 1, width] are rows of a RopeTable.
    """
    part = states[..., : cos.shape[-1]]
    swapped = part.roll(part.shape[-1] // 2, -1)
    part.mul_(cos).addcmul_(swapped, sin)
