"""Look up embeddings: in a matrix in memory, or row by row in the file that stores them."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from typing import BinaryIO

import torch
from torch import Tensor
from torch.nn.functional import embedding

from gencli.models.decoder.products.int8 import Int8Weights
from gencli.models.files.table import StoredTensor
from gencli.models.files.tensors import dtype_of, read_bytes

__all__ = ["Embeddings", "HeldEmbeddings", "Int8Embeddings", "StoredEmbeddings", "stays_in_file"]

_MIN_STORED = 2**24  # bytes; smaller embeddings are always held in memory


class Embeddings(ABC):
    """Embeddings of token ids.

    `dtype` and `device` are those of the result, `nbytes` is the memory that the embeddings take.
    """

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

    def __init__(self, weights: Int8Weights, dtype: torch.dtype = torch.float32) -> None:
        self._weights, self.nbytes = weights, weights.codes.nbytes
        self.dtype, self.device = dtype, weights.codes.device

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]."""
        return self._weights.rows(ids).to(self.dtype)


class StoredEmbeddings(Embeddings):
    """Rows of a matrix [V, H] in a file, read when they are looked up; `dtype` is that of the result.

    A token reads one row, so the matrix need not be held in memory.
    """

    nbytes = 0
    device = torch.device("cpu")

    def __init__(self, stored: StoredTensor, stream: BinaryIO, dtype: torch.dtype) -> None:
        self.dtype, self._stored, self._stream = dtype, stored, stream
        self._stored_dtype = dtype_of(stored)
        self._row_bytes = stored.nbytes // stored.shape[0]
        weakref.finalize(self, stream.close)
        if hasattr(os, "posix_fadvise"):  # the rows of the first prompt are not read from the disk one by one
            os.posix_fadvise(stream.fileno(), stored.start, stored.nbytes, os.POSIX_FADV_WILLNEED)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]. Raises ModelError if the file has become shorter."""
        rows = torch.empty(len(ids), self._stored.shape[1], dtype=self._stored_dtype)
        for target, number in zip(rows.view(torch.uint8), ids.tolist(), strict=True):
            read_bytes(self._stream, self._stored.start + number * self._row_bytes, target)
        return rows.to(self.dtype)


def stays_in_file(nbytes: int, device: torch.device) -> bool:
    """Return whether embeddings of `nbytes` bytes, which no product shares, are left in their file."""
    return device.type == "cpu" and nbytes >= _MIN_STORED
