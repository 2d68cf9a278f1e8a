"""Weights of eight and of four bits in groups of 32 inputs, and PyTorch's products with them on a CPU. All
kernels add up each row of activations by itself, so its bits are the same among any number of rows.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from gencli.models.decoder.products.dense_products import Product, WeightPart

GROUP = 32  # inputs with one scale
_INT8_TOP = torch.tensor(127.0)  # the largest code
_ZERO = 128  # the byte of an activation of 0
_INT8_MIDDLE = torch.tensor(_ZERO + 0.5)
_VNNI = frozenset(("avx512_vnni", "avx_vnni", "amx_int8"))
_INT8_BLOCK = 2**17  # numbers that are quantized at once, which stay in the cache of a core
_FILTERING = Lock()
_READ_INPUTS = 64  # _weight_int8pack_mm reads this many inputs at once, also beyond the end of a row


@dataclass(frozen=True, slots=True)
class Int8Weights:
    """Weights code * scale: `codes` [out, in] are int8 in -127..127.

    `scales` are float16 [out, in / 32], one for each 32 inputs (as Q8_0 of GGUF), or float32 [out].
    """

    codes: Tensor
    scales: Tensor

    @classmethod
    def of(cls, shape: tuple[int, int], slices: Iterable[Tensor], *, by_row: bool = False) -> Self:
        """Return weights [out, in] rounded to codes, given as slices of their rows.

        A scale is max(abs(weights)) / 127, `by_row` of a whole row, as it is where `in` is no multiple of
        32. Weights that are not finite have scales that are not.
        """
        part_codes, part_scales = cls.parts(shape, by_row=by_row)
        codes = torch.empty(shape, dtype=part_codes.dtype)
        scales = torch.empty(part_scales.shape, dtype=part_scales.dtype)
        rows, start = max(1, _INT8_BLOCK // max(1, shape[1])), 0
        for part in chain.from_iterable(torch.split(matrix, rows) for matrix in slices):
            target = slice(start, start + len(part))
            groups = part.float().view(len(part), *scales.shape[1:], -1)
            scales[target] = groups.abs().amax(-1) / _INT8_TOP
            scale = scales[target].float()[..., None]
            steps = (groups / torch.where(scale == 0, 1.0, scale)).round_().clamp_(-_INT8_TOP, _INT8_TOP)
            codes[target] = steps.view(part.shape)
            start = target.stop
        return cls(codes, scales)

    @staticmethod
    def parts(shape: tuple[int, int], *, by_row: bool = False) -> tuple[WeightPart, WeightPart]:
        """Return how weights of a shape are stored: codes, scales."""
        if by_row or shape[1] % GROUP:
            return WeightPart("", shape, torch.int8), WeightPart("_scale", shape[:1], torch.float32)
        groups = (shape[0], shape[1] // GROUP)
        return WeightPart("", shape, torch.int8), WeightPart("_scale", groups, torch.float16)

    def by_row(self) -> Int8Weights:
        """Return the weights with one scale for each output, rounded again where they have more."""
        if self.scales.dim() == 1:
            return self
        rows = max(1, _INT8_BLOCK // max(1, self.codes.shape[1]))
        held = Int8Weights(self.codes.cpu(), self.scales.cpu())
        slices = map(held.rows, torch.split(torch.arange(len(self.codes)), rows))
        return Int8Weights.of((len(self.codes), self.codes.shape[1]), slices, by_row=True)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The stored tensors, in the order of parts()."""
        return self.codes, self.scales

    @property
    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        return bool(self.scales.isfinite().all())

    def rows(self, ids: Tensor) -> Tensor:
        """Return the weights [N, in] of the rows `ids` [N], float32."""
        codes, scales = self.codes[ids].float(), self.scales[ids].float()
        groups = codes.view(len(ids), *scales.shape[1:], -1)
        return groups.mul_(scales[..., None]).view(codes.shape)


class QlinearProduct(Product):
    """The product of oneDNN for CPUs that multiply bytes (VNNI).

    A row x of activations is rounded to u = floor(x / s + 128.5) with s = max(abs(x)) / 127, and the exact
    product of u - 128 and the weights' codes is multiplied by the weights' scales and by s.
    """

    kernel = "qlinear"
    is_invariant = True

    def __init__(self, weights: Int8Weights, bias: Tensor | None = None) -> None:
        self.nbytes = weights.codes.nbytes
        self._packed = torch.ops.onednn.qlinear_prepack.default(weights.codes, None)
        self._scales, self._bias = weights.scales, bias
        self._zeros = torch.zeros(len(weights.scales), dtype=torch.int32)
        # The overload is named, because choosing it by its arguments takes as long as a small product.
        self._product: Callable[..., Tensor] = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        numbers, scales = _scaled(given)
        made = self._product(
            *(numbers.byte(), 1.0, _ZERO, self._packed, self._scales, self._zeros, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        ).mul_(scales)
        return made if self._bias is None else made.add_(self._bias)


class FbgemmProduct(Product):
    """The product of FBGEMM for x86 CPUs with AVX-512 VNNI; its bits are those of QlinearProduct.

    It reads the weights faster and costs less a call. Elsewhere its sums of two products saturate at 16 bits.
    """

    kernel = "fbgemm"
    is_invariant = True

    def __init__(self, weights: Int8Weights, bias: Tensor | None = None) -> None:
        self.nbytes, self._bias = weights.codes.nbytes, bias
        zeros = torch.zeros(len(weights.scales), dtype=torch.int64)
        with _FILTERING, warnings.catch_warnings():  # which threads must not enter side by side
            # PyTorch will drop tensors of this type; qlinear takes over then.
            warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
            codes = torch._make_per_channel_quantized_tensor(weights.codes, weights.scales.double(), zeros, 0)
        self._packed = torch.ops.quantized.linear_prepack.default(codes, None)
        self._product: Callable[..., Tensor] = _fbgemm().default

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        numbers, scales = _scaled(given)
        # The kernel rounds to bytes by itself, halves to even: it is given numbers that are whole already.
        made = self._product(numbers.floor_().sub_(_ZERO), 1.0, _ZERO, self._packed).mul_(scales)
        return made if self._bias is None else made.add_(self._bias)


class Int8PackProduct(Product):
    """The product of PyTorch for other CPUs; activations and results are rounded to bfloat16.

    With other activations its kernel is a plain loop, more than ten times slower.
    """

    kernel = "int8pack"
    is_invariant = True

    def __init__(self, weights: Int8Weights, bias: Tensor | None = None) -> None:
        self._missing = -weights.codes.shape[1] % _READ_INPUTS
        self._codes = pad(weights.codes, (0, self._missing)) if self._missing else weights.codes
        self.nbytes = self._codes.nbytes
        self._scales, self._bias = weights.scales.bfloat16(), bias
        self._product: Callable[..., Tensor] = torch.ops.aten._weight_int8pack_mm.default

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], float32."""
        if self._missing:
            given = pad(given, (0, self._missing))
        made = self._product(given.bfloat16(), self._codes, self._scales).float()
        return made if self._bias is None else made.add_(self._bias)


def row_kernels() -> tuple[type[Product], ...]:
    """Return the kernels of this CPU for weights with a scale for each output; all have the same bits."""
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    is_x86 = platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn
    if not is_x86 or not any(found.get(name) is True for name in _VNNI):
        return (Int8PackProduct,)
    has_fbgemm = torch.backends.quantized.engine in ("x86", "fbgemm") and _fbgemm() is not None
    if has_fbgemm and found.get("avx512_vnni") is True:
        return FbgemmProduct, QlinearProduct
    return (QlinearProduct,)


def _fbgemm() -> Any:
    return getattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32", None)


def _scaled(given: Tensor) -> tuple[Tensor, Tensor]:
    """Return x / s + 128.5 for `given` [N, in], and s = max(abs(x)) / 127 for each row x, [N, 1].

    A row of zeros has a scale of 0 and undefined numbers; the product of both is 0.
    """
    scales = given.abs().amax(1, True).div_(_INT8_TOP)
    return (given / scales).add_(_INT8_MIDDLE), scales


_INT4_MIDDLE, _INT4_TOP = 8, 15
_FITS = 2  # times that scale and zero are fitted to the codes
_INT4_BLOCK = 2**16  # numbers that are quantized at once, which take a dozen times as much memory
_PACKED_OUTPUTS = 64  # outputs in a block of the packed layout


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
        rows = max(1, _INT4_BLOCK // max(1, inputs))
        for part in chain.from_iterable(torch.split(found, rows) for found in slices):
            place = slice(start, start + len(part))
            steps, scale, zero = _fitted(part.float().view(-1, inputs // GROUP, GROUP))
            pairs = steps.add_(_INT4_MIDDLE).to(torch.uint8).view(-1, inputs).view(torch.int16)
            codes[place] = pairs | pairs >> 4  # the second of two codes moves to the upper half of the first
            scales[place], zeros[place] = scale, zero
            start = place.stop
        return cls(codes, scales, zeros)

    @staticmethod
    def parts(shape: tuple[int, int]) -> tuple[WeightPart, ...]:
        """Return how weights of a shape are stored: codes, scales, zeros."""
        groups = (shape[0], shape[1] // GROUP)
        return (
            WeightPart("", (shape[0], shape[1] // 2), torch.uint8),
            WeightPart("_scale", groups, torch.bfloat16),
            WeightPart("_zero", groups, torch.bfloat16),
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
        """Return the codes of some rows, [rows, in] uint8."""
        codes = self.codes[rows]
        return torch.stack([codes & 15, codes >> 4], -1).view(len(codes), -1)


class Int4Product(Product):
    """The product of PyTorch with activations and results rounded to bfloat16.

    A row's bits are the same among any number of rows.
    """

    kernel = "int4pack"
    is_invariant = True

    def __init__(self, weights: Int4Weights, bias: Tensor | None = None) -> None:
        self._count, half = weights.codes.shape
        missing = -self._count % _PACKED_OUTPUTS
        self._packed = torch.empty(self._count + missing, half, dtype=torch.uint8)
        rows = max(1, _INT4_BLOCK // (2 * half * _PACKED_OUTPUTS)) * _PACKED_OUTPUTS
        for start in range(0, len(self._packed), rows):
            codes = weights.unpacked(slice(start, start + rows)).int()
            codes = pad(codes, (0, 0, 0, -len(codes) % _PACKED_OUTPUTS), value=_INT4_MIDDLE)
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
    scale = (high - low) / _INT4_TOP
    scratch, total, count = torch.empty_like(groups), groups.sum(-1), groups.shape[-1]
    steps, scale, zero, error = _rounded(groups, scale, low + _INT4_MIDDLE * scale, scratch)
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
    return (groups - zero[..., None]).div_(divisor).round_().clamp_(-_INT4_MIDDLE, _INT4_TOP - _INT4_MIDDLE)
