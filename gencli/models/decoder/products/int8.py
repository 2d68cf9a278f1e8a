"""Weights of eight bits with a scale for each output, and products with them on a CPU.

A weight is code * scale. All kernels add up each row of activations by itself, so its bits are the same
among any number of rows. Where a CPU multiplies bytes (VNNI) there are two kernels with the same bits: they
add up integers, which is exact.
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

from gencli.models.decoder.products.base import Part, Product

__all__ = ["FbgemmProduct", "Int8PackProduct", "Int8Weights", "QlinearProduct", "int8_kernels"]

_TOP = torch.tensor(127.0)  # the largest code
_ZERO = 128  # the byte of an activation of 0
_MIDDLE = torch.tensor(_ZERO + 0.5)
_VNNI = frozenset(("avx512_vnni", "avx_vnni", "amx_int8"))
_BLOCK = 2**17  # numbers that are quantized at once, which stay in the cache of a core
_FILTERING = Lock()
_MULTIPLE = 64  # _weight_int8pack_mm reads this many inputs at once, also beyond the end of a row


@dataclass(frozen=True, slots=True)
class Int8Weights:
    """Weights codes * scales[:, None]: `codes` [out, in] are int8 in -127..127, `scales` [out] float32."""

    codes: Tensor
    scales: Tensor

    @classmethod
    def of(cls, shape: tuple[int, int], slices: Iterable[Tensor]) -> Self:
        """Return weights [out, in] rounded to codes, given as slices of their rows.

        The scale of a row is max(abs(row)) / 127. Weights that are not finite have scales that are not.
        """
        codes, scales = torch.empty(shape, dtype=torch.int8), torch.empty(shape[0])
        rows, start = max(1, _BLOCK // max(1, shape[1])), 0
        for part in chain.from_iterable(torch.split(found, rows) for found in slices):
            weight, place = part.float(), slice(start, start + len(part))
            scale = weight.abs().amax(1) / _TOP
            scales[place] = scale
            divisor = torch.where(scale == 0, 1.0, scale)
            codes[place] = (weight / divisor[:, None]).round_()
            start = place.stop
        return cls(codes, scales)

    @staticmethod
    def parts(shape: tuple[int, int]) -> tuple[Part, ...]:
        """Return how weights of a shape are stored: codes, scales."""
        return Part("", shape, torch.int8), Part("_scale", shape[:1], torch.float32)

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
        return self.codes[ids].float().mul_(self.scales[ids][:, None])


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
        self._missing = -weights.codes.shape[1] % _MULTIPLE
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


def int8_kernels() -> tuple[type[Product], ...]:
    """Return the kernels of this CPU; all of them have the same bits."""
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
    scales = given.abs().amax(1, True).div_(_TOP)
    return (given / scales).add_(_MIDDLE), scales
