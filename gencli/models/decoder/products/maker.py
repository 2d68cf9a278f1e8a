"""Choose the kernel of each product while a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.dense import PackedProduct, PlainProduct
from gencli.models.onednn import can_pack

__all__ = ["ProductMaker"]


@dataclass(frozen=True, slots=True)
class ProductMaker:
    """Makes the products of one model."""

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Return the product with `weight` [out, in]: packed where an x86 CPU can, else plain."""
        is_packable = weight.device.type == "cpu" and can_pack(weight.dtype)
        return PackedProduct(weight, bias) if is_packable else PlainProduct(weight, bias)
