"""Choose the kernel of each product while a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from gencli.models.decoder.embeddings import Embeddings, HeldEmbeddings
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.dense import PackedProduct, PlainProduct
from gencli.models.onednn import can_pack

if TYPE_CHECKING:
    from gencli.models.decoder.weights import WeightReader

__all__ = ["EMBEDDINGS", "HEAD", "ProductMaker"]

EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class ProductMaker:
    """Makes the products of one model."""

    def __call__(self, weight: Tensor, bias: Tensor | None = None) -> Product:
        """Return the product with `weight` [out, in]: packed where an x86 CPU can, else plain."""
        is_packable = weight.device.type == "cpu" and can_pack(weight.dtype)
        return PackedProduct(weight, bias) if is_packable else PlainProduct(weight, bias)

    def read(
        self, reader: WeightReader, weights: Sequence[str], shape: tuple[int, int], biases: Sequence[str] = ()
    ) -> Product:
        """Return the product with the joined `weights`, [out, in] in all, and `biases`."""
        weight = reader.joined(weights, shape)
        return self(weight, reader.joined(biases, shape[:1]) if biases else None)

    def read_ends(
        self, reader: WeightReader, shape: tuple[int, int], *, is_tied: bool
    ) -> tuple[Embeddings, Product]:
        """Return the embeddings and the vocabulary projection, both [V, H]."""
        table = reader.read(EMBEDDINGS, shape)
        return HeldEmbeddings(table), self(table if is_tied else reader.read(HEAD, shape))
