"""Matrix products with fixed weights: [N, in] -> [N, out]."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from gencli.models.onednn import MIN_PACKED_WEIGHTS, PACKED_ROWS, can_pack

__all__ = ["Product", "make_product"]


class Product:
    """x @ weight.T + bias, by the plain product of PyTorch. `weight` is [out, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight, self._bias = weight, bias

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""
        return linear(given, self._weight, self._bias)


class _Packed(Product):
    """The same product with weights in oneDNN's layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__(torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_ROWS), bias)

    def __call__(self, given: Tensor) -> Tensor:
        made: Tensor = torch.ops.mkldnn._linear_pointwise(given, self._weight, self._bias, "none", [], "")
        return made


def make_product(weight: Tensor, bias: Tensor | None = None) -> Product:
    """Return the product with `weight` [out, in] that is fastest on this machine."""
    is_packable = (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.numel() >= MIN_PACKED_WEIGHTS
        and can_pack()
    )
    return _Packed(weight, bias) if is_packable else Product(weight, bias)
