"""Interface to the weights of a checkpoint, whatever its file format, and a base class of its readers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from gencli.models.decoder.embeddings import Embeddings
from gencli.models.watch import OnBytes

__all__ = ["Part", "PartsReader", "WeightReader"]


class WeightReader(Protocol):
    """Tensors by name, as numbers of one dtype on one device.

    `unread` are the names that were not read. `free` [N] is memory for the next product's weights, if any.
    """

    unread: set[str]
    free: Tensor | None
    dtype: torch.dtype
    device: torch.device

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor. Raises ModelError if it is absent or has another shape."""
        ...

    def joined(self, names: Sequence[str], shape: Sequence[int], *, memory: Tensor | None = None) -> Tensor:
        """Return tensors joined along their first dimension, [sum of first dimensions, ...].

        `memory` [N] is used for them if it is large enough. Raises ModelError as `read` does.
        """
        ...

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        """Yield slices [rows, in] of joined matrices [out, in], to be quantized, valid until the next one.

        They lie on the CPU and have the digits that are stored, whatever the dtype of the states is.

        Raises ModelError as `read` does.
        """
        ...

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        """Return embeddings [V, H] that stay in their file. Raises ModelError as `read` does."""
        ...

    def codes(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Tensor, ...] | None:
        """Return joined matrices [out, in] in the file's codes and scales, as a GroupedProduct takes them.

        None for numbers, and for codes that it does not take. Raises ModelError as `read` does.
        """
        ...


class Part(Protocol):
    """Where a tensor lies in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...


P = TypeVar("P", bound=Part)


class PartsReader(WeightReader, ABC, Generic[P]):
    """Reads tensors that lie somewhere in files into the memory that they are used in; counts their bytes."""

    def __init__(
        self,
        names: Iterable[str],
        nbytes: int,
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self.unread, self.free = set(names), None
        self.dtype, self.device = dtype, device
        self._on_bytes, self._done, self._total = on_bytes, 0, nbytes
        self._count(0)

    @abstractmethod
    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[P]:
        """Return where tensors lie.

        Raises ModelError if one is absent, or if joined they have another shape than `shape`.
        """

    @abstractmethod
    def _fill(self, part: P, target: Tensor) -> None:
        """Read a tensor into `target`."""

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor. Raises ModelError if it is absent or has another shape."""
        return self.joined([name], shape)

    def joined(
        self,
        names: Sequence[str],
        shape: Sequence[int],
        *,
        memory: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return tensors joined along their first dimension, [sum of first dimensions, ...], as `dtype`.

        `memory` [N] is used for them if it is large enough. Raises ModelError as `read` does.
        """
        parts, count, dtype = self.check(names, shape), math.prod(shape), dtype or self.dtype
        if memory is None or len(memory) < count or memory.dtype != dtype:
            memory = torch.empty(count, dtype=dtype, device=self.device)
        joined = memory[:count].view(*shape)
        for part, target in zip(parts, torch.split(joined, [one.shape[0] for one in parts]), strict=True):
            self._fill(part, target)
        self.unread.difference_update(names)
        return joined

    def codes(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Tensor, ...] | None:
        """Return None: the matrices are numbers."""
        return None

    def _count(self, nbytes: int) -> None:
        self._done += nbytes
        if self._on_bytes:
            self._on_bytes(self._done, self._total)
