"""Products with weights in the format of the activations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from gencli.models.decoder.products.base import Product
from gencli.models.onednn import PACKED_ROWS

__all__ = [
    "Float32Head",
    "PackedProduct",
    "PlainProduct",
    "RowPackedProduct",
    "TilePackedProduct",
    "adds_wide",
]

# From this number of inputs on, the packed product of a single row adds up in another order.
_MIN_SPLIT_INPUTS = 2048


class PlainProduct(Product):
    """The plain product of PyTorch. `weight` is [out, in]."""

    kernel = "plain"
    is_invariant = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias, self.nbytes = weight, bias, weight.nbytes

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return linear(given, self._weight, self._bias)

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32."""
        if not adds_wide(given.dtype, given.device):
            return super().wide(given)
        made = torch.mm(given, self._weight.t(), out_dtype=torch.float32)
        return made if self._bias is None else made.add_(self._bias)


class RowPackedProduct(Product):
    """The product with weights in the layout that oneDNN chooses for a single row.

    A single row takes up to a quarter less time than with PackedProduct, several rows take more. The bits of
    a row depend on the number of rows.
    """

    kernel = "row-packed"
    is_invariant = False

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._weight, self._bias = torch.ops.mkldnn._reorder_linear_weight(weight, 1), bias

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return _packed_linear(given, self._weight, self._bias)


class PackedProduct(Product):
    """The product with weights in oneDNN's layout; a row's bits do not depend on the number of rows.

    A single row gets a second one where the kernel would otherwise split the sum. Both cost the same, because
    reading the weights takes the time.
    """

    kernel = "packed"
    is_invariant = True

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS)
        self._bias = bias
        self._is_split = weight.shape[1] >= _MIN_SPLIT_INPUTS

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        if self._is_split and len(given) == 1:
            return _packed_linear(pad(given, (0, 0, 0, 1)), self._weight, self._bias)[:1]
        return _packed_linear(given, self._weight, self._bias)


class TilePackedProduct(PackedProduct):
    """PackedProduct in bfloat16 on a CPU with AMX, where the bits of a row depend on the number of rows.

    oneDNN adds up in other blocks there, by the number of rows and the size of the weights. They are equal
    with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16.
    """

    is_invariant = False


class Float32Head(Product):
    """A vocabulary projection whose results are float32, whatever the format of the states.

    Logits in 16 bits have exact ties: with 8 bits of precision in one of twenty steps at the top.
    """

    kernel = "float32"
    is_invariant = False

    def __init__(self, inner: Product) -> None:
        self._inner, self.nbytes = inner, inner.nbytes

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32, with `given` [N, in]."""
        return self._inner.wide(given)


def adds_wide(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether products of 16-bit numbers give the float32 sums there: on a GPU of NVIDIA."""
    return device.type == "cuda" and torch.version.hip is None and dtype in (torch.bfloat16, torch.float16)


def _packed_linear(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    made: Tensor = torch.ops.mkldnn._linear_pointwise(given, weight, bias, "none", [], "")
    return made
