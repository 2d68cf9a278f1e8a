"""Look up embeddings in a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import embedding

from gencli.models.decoder.products.int8 import Int8Weights

__all__ = ["Embeddings", "HeldEmbeddings", "Int8Embeddings"]


class Embeddings(ABC):
    """Embeddings of token ids. `dtype` and `device` are those of the result, `nbytes` the memory taken."""

    dtype: torch.dtype
    device: torch.device
    nbytes: int

    @abstractmethod
    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]."""


class HeldEmbeddings(Embeddings):
    """Rows of a matrix [V, H] in memory."""

    def __init__(self, weight: Tensor) -> None:
        self._weight, self.nbytes = weight, weight.nbytes
        self.dtype, self.device = weight.dtype, weight.device

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]."""
        return embedding(ids, self._weight)


class Int8Embeddings(Embeddings):
    """Rows of a matrix [V, H] of eight bits in memory."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, weights: Int8Weights) -> None:
        self._weights, self.nbytes = weights, weights.codes.nbytes

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]."""
        return self._weights.rows(ids)
