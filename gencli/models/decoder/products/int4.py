"""Weights of four bits in groups of 32 inputs, and the product with them on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from gencli.models.decoder.products.base import Part, Product

__all__ = ["GROUP", "Int4Product", "Int4Weights"]

GROUP = 32  # inputs with one scale and one zero
_MIDDLE, _TOP = 8, 15
_FITS = 2  # times that scale and zero are fitted to the codes
_BLOCK = 2**19  # numbers that are quantized at once; with fewer the calls take longest
_MULTIPLE = 64  # outputs in a block of the packed layout


@dataclass(frozen=True, slots=True)
class Int4Weights:
    """Weights (code - 8) * scale + zero, with codes in 0..15.

    `codes` [out, in / 2] are uint8, an even input in the lower four bits and the next one in the upper.
    `scales` and `zeros` [out, in / 32] are bfloat16.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor

    @classmethod
    def of(cls, shape: tuple[int, int], slices: Iterable[Tensor]) -> Self:
        """Return weights [out, in] rounded to codes, given as slices of their rows; `in` is a multiple of 32.

        A group's scale and zero first cover its smallest and largest weight. Then, twice, they are fitted to
        the codes by least squares, and the codes become the nearest again, where that lessens the error.
        Weights that are not finite have scales or zeros that are not.
        """
        codes, scales, zeros = (torch.empty(part.shape, dtype=part.dtype) for part in cls.parts(shape))
        inputs, start = shape[1], 0
        rows = max(1, _BLOCK // max(1, inputs))
        for part in chain.from_iterable(torch.split(found, rows) for found in slices):
            place = slice(start, start + len(part))
            steps, scale, zero = _fitted(part.float().view(-1, inputs // GROUP, GROUP))
            pairs = steps.add_(_MIDDLE).to(torch.uint8).view(-1, inputs).view(torch.int16)
            codes[place] = pairs | pairs >> 4  # the second of two codes moves to the upper half of the first
            scales[place], zeros[place] = scale, zero
            start = place.stop
        return cls(codes, scales, zeros)

    @staticmethod
    def parts(shape: tuple[int, int]) -> tuple[Part, ...]:
        """Return how weights of a shape are stored: codes, scales, zeros."""
        groups = (shape[0], shape[1] // GROUP)
        return (
            Part("", (shape[0], shape[1] // 2), torch.uint8),
            Part("_scale", groups, torch.bfloat16),
            Part("_zero", groups, torch.bfloat16),
        )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The stored tensors, in the order of parts()."""
        return self.codes, self.scales, self.zeros

    @property
    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        return bool(self.scales.isfinite().all() and self.zeros.isfinite().all())

    def unpacked(self, rows: slice) -> Tensor:
        """Return the codes of some rows, [rows, in] int32."""
        codes = self.codes[rows]
        return torch.stack([codes & 15, codes >> 4], -1).view(len(codes), -1).int()


class Int4Product(Product):
    """The product of PyTorch with activations and results rounded to bfloat16.

    A row's bits are the same among any number of rows.
    """

    kernel = "int4pack"
    is_invariant = True

    def __init__(self, weights: Int4Weights, bias: Tensor | None = None) -> None:
        self._count, half = weights.codes.shape
        missing = -self._count % _MULTIPLE
        self._packed = torch.empty(self._count + missing, half, dtype=torch.uint8)
        rows = max(1, _BLOCK // (2 * half * _MULTIPLE)) * _MULTIPLE
        for start in range(0, len(self._packed), rows):
            codes = weights.unpacked(slice(start, start + rows))
            codes = pad(codes, (0, 0, 0, -len(codes) % _MULTIPLE), value=_MIDDLE)
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu.default(codes, 1)
            self._packed[start : start + rows] = packed
        both = torch.stack([weights.scales, weights.zeros], -1).transpose(0, 1)
        self._scales = pad(both, (0, 0, 0, missing)).contiguous()
        self._bias = bias
        self.nbytes = self._packed.nbytes + self._scales.nbytes
        self._product: Callable[..., Tensor] = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        made = self._product(given.bfloat16(), self._packed, GROUP, self._scales)
        made = (made if made.shape[1] == self._count else made[:, : self._count]).float()
        return made if self._bias is None else made.add_(self._bias)


def _fitted(groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return steps (codes less 8) [out, groups, 32], scales and zeros [out, groups] of `groups`."""
    low, high = groups.amin(-1), groups.amax(-1)
    scale = (high - low) / _TOP
    scratch, total, count = torch.empty_like(groups), groups.sum(-1), groups.shape[-1]
    steps, scale, zero, error = _rounded(groups, scale, low + _MIDDLE * scale, scratch)
    sums, squares, mixed = _moments(groups, steps, scratch)
    for index in range(_FITS):  # linear regression of the weights on their codes
        spread = count * squares - sums.square()
        slope = (count * mixed - sums * total) / spread.clamp_(min=1.0)
        tried = _rounded(groups, slope, (total - slope * sums) / count, scratch)
        is_better = tried[3] < error
        pairs = zip(tried[1:], (scale, zero, error), strict=True)
        scale, zero, error = (torch.where(is_better, new, old) for new, old in pairs)
        if index + 1 < _FITS:
            pairs = zip(_moments(groups, tried[0], scratch), (sums, squares, mixed), strict=True)
            sums, squares, mixed = (torch.where(is_better, new, old) for new, old in pairs)
    # Computing the steps again takes less time than choosing them group by group.
    return _steps(groups, scale, zero), scale, zero


def _moments(groups: Tensor, steps: Tensor, scratch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sums of steps, of their squares, and of their products with the weights, [out, groups]."""
    squares = torch.mul(steps, steps, out=scratch).sum(-1)
    return steps.sum(-1), squares, torch.mul(steps, groups, out=scratch).sum(-1)


def _rounded(
    groups: Tensor, scale: Tensor, zero: Tensor, scratch: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the nearest steps, scale and zero rounded to bfloat16, and the sum of squared errors."""
    scale, zero = scale.bfloat16().float(), zero.bfloat16().float()
    steps = _steps(groups, scale, zero)
    made = torch.mul(steps, scale[..., None], out=scratch).add_(zero[..., None])
    return steps, scale, zero, made.sub_(groups).square_().sum(-1)


def _steps(groups: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    divisor = torch.where(scale == 0, 1.0, scale)[..., None]
    return (groups - zero[..., None]).div_(divisor).round_().clamp_(-_MIDDLE, _TOP - _MIDDLE)
