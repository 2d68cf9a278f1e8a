"""Matrix products with fixed weights: [N, in] -> [N, out]."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from gencli.models.onednn import PACKED_ROWS, can_pack

__all__ = ["Product", "make_product"]

# From this number of inputs on, the packed product of a single row adds up in another order.
_MIN_SPLIT_INPUTS = 2048


class Product:
    """x @ weight.T + bias, by the plain product of PyTorch. `weight` is [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return linear(given, self._weight, self._bias)


class _Packed(Product):
    """The same product with weights in oneDNN's layout; a row's bits do not depend on the number of rows.

    A single row gets a second one where the kernel would otherwise split the sum. Both cost the same, because
    reading the weights takes the time.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS), bias)
        self._is_split = weight.shape[1] >= _MIN_SPLIT_INPUTS

    def __call__(self, given: Tensor) -> Tensor:
        if self._is_split and len(given) == 1:
            return self._product(pad(given, (0, 0, 0, 1)))[:1]
        return self._product(given)

    def _product(self, given: Tensor) -> Tensor:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._weight, self._bias, "none", [], "")
        return made


def make_product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Return the product with `weight` [out, in]: packed in float32 on an x86 CPU, else plain."""
    is_packable = weight.dtype == torch.float32 and weight.device.type == "cpu" and can_pack()
    return _Packed(weight, bias) if is_packable else Product(weight, bias)
