"""Interface of a matrix product with fixed weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

__all__ = ["Part", "Product"]


@dataclass(frozen=True, slots=True)
class Part:
    """A stored tensor of a quantized matrix. Its name is that of the matrix and `suffix`."""

    suffix: str
    shape: tuple[int, ...]
    dtype: torch.dtype


class Product(ABC):
    """x @ weight.T + bias: [N, in] -> [N, out].

    `kernel` is its name for users, `is_invariant` whether the bits of a row are the same among any number of
    rows, `nbytes` the bytes of memory that its weights take.
    """

    kernel: ClassVar[str]
    is_invariant: ClassVar[bool]
    nbytes: int

    @abstractmethod
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Take the weight [out, in] and the bias [out]."""

    @abstractmethod
    def __call__(self, given: Tensor) -> Tensor:
        """Return the product [N, out] with `given` [N, in]."""

    def wide(self, given: Tensor) -> Tensor:
        """Return the product [N, out] in float32, as it was added up, whatever the format of `given`."""
        return self(given.float())
