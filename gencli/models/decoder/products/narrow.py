"""Products on CUDA with weights of eight or four bits, which are widened where they are multiplied."""

from __future__ import annotations

from torch import Tensor

from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.fixed import counters_of, fixed_product
from gencli.models.decoder.products.int4 import Int4Weights
from gencli.models.decoder.products.int8 import Int8Weights

__all__ = ["FixedInt4Product", "FixedInt8Product"]


class FixedInt8Product(Product):
    """FixedProduct with the codes of Int8Weights: exact in 16 bits; a sum is multiplied by its scale."""

    kernel = "fixed-int8"
    is_invariant = True

    def __init__(self, weights: Int8Weights, bias: Tensor | None = None) -> None:
        self._codes, self._scales, self._bias = weights.codes, weights.scales, bias
        self.nbytes = self._codes.nbytes + self._scales.nbytes
        self._arrived = counters_of(self._codes)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], in its format."""
        return fixed_product(given, self._codes, self._scales, None, self._bias, self._arrived)

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out], float32."""
        return fixed_product(given, self._codes, self._scales, None, self._bias, self._arrived, is_wide=True)


class FixedInt4Product(Product):
    """FixedProduct with the codes of Int4Weights; a weight is rounded to the format of the activations."""

    kernel = "fixed-int4"
    is_invariant = True

    def __init__(self, weights: Int4Weights, bias: Tensor | None = None) -> None:
        self._weights, self._bias = weights, bias
        self.nbytes = sum(part.nbytes for part in weights.tensors)
        self._arrived = counters_of(weights.codes)

    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in], in its format."""
        codes, scales, zeros = self._weights.tensors
        return fixed_product(given, codes, scales, zeros, self._bias, self._arrived)
