"""Embeddings that stay in a GGUF file: rows are read and widened when they are looked up."""

from __future__ import annotations

import os
import weakref
from typing import BinaryIO

import torch
from torch import Tensor

from gencli.models.decoder.embeddings import Embeddings
from gencli.models.files.tensors import read_bytes
from gencli.models.gguf.head import GgufTensor
from gencli.models.gguf.widen import widened

__all__ = ["GgufEmbeddings"]


class GgufEmbeddings(Embeddings):
    """Rows of a matrix [V, H] in a GGUF file; `dtype` is that of the result."""

    nbytes = 0
    device = torch.device("cpu")

    def __init__(self, stored: GgufTensor, stream: BinaryIO, dtype: torch.dtype) -> None:
        self.dtype, self._stored, self._stream = dtype, stored, stream
        self._row_bytes = stored.nbytes // stored.shape[0]
        weakref.finalize(self, stream.close)
        if hasattr(os, "posix_fadvise"):  # the rows of the first prompt are not read from the disk one by one
            os.posix_fadvise(stream.fileno(), stored.start, stored.nbytes, os.POSIX_FADV_WILLNEED)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]. Raises ModelError if the file has become shorter."""
        rows = torch.empty(len(ids), self._row_bytes, dtype=torch.uint8)
        for target, number in zip(rows, ids.tolist(), strict=True):
            read_bytes(self._stream, self._stored.start + number * self._row_bytes, target)
        return widened(rows.numpy(), self._stored.kind).to(self.dtype)
