"""Read the tensors of a checkpoint one by one, straight from its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.models.decoder.embeddings import Embeddings, StoredEmbeddings
from gencli.models.decoder.reader import PartsReader
from gencli.models.files.table import StoredTensor
from gencli.models.files.tensors import TensorFiles, dtype_of
from gencli.models.watch import OnBytes

__all__ = ["SLICE", "SafetensorsReader"]

SLICE = 2**19  # numbers in a slice of a matrix, which the CPU's cache holds


class SafetensorsReader(PartsReader[StoredTensor]):
    """Tensors by name, each converted to `dtype` on `device`; the bytes read are counted.

    A tensor is read into the memory that it is used in, so that no copy stays behind.
    """

    def __init__(
        self, files: TensorFiles, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None
    ) -> None:
        self._files = files
        nbytes = sum(stored.nbytes for stored in files.tensors.values())
        super().__init__(files.tensors, nbytes, dtype, device, on_bytes)

    def __contains__(self, name: str) -> bool:
        return name in self._files.tensors

    def _fill(self, part: StoredTensor, target: Tensor) -> None:
        self._files.read_into(part.name, target, self._count)

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        """Yield slices [rows, in] of joined matrices, as WeightReader.slices."""
        inputs, parts = shape[1], self.check(names, shape)
        scratch = torch.empty(max(1, SLICE // max(1, inputs)), inputs)
        for name, part in zip(names, parts, strict=True):
            for start in range(0, part.shape[0], len(scratch)):
                found = scratch[: part.shape[0] - start]
                self._files.read_into(name, found, self._count, start * inputs)
                yield found
        self.unread.difference_update(names)

    def stored(
        self,
        names: Sequence[str],
        shape: Sequence[int],
        dtype: torch.dtype,
        *,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Return joined tensors that are stored in `dtype`. Raises ModelError for another one.

        `memory` [N] is used for them as in `joined`.
        """
        for part in map(self._stored, names):
            if dtype_of(part) != dtype:
                found, wanted = (str(one).removeprefix("torch.") for one in (dtype_of(part), dtype))
                raise ModelError(f"The weights {part.name} are stored as {found}, but have to be {wanted}.")
        return self.joined(names, shape, dtype=dtype, memory=memory)

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        """Return embeddings [V, H] that stay in their file. Raises ModelError as `read` does."""
        (stored,) = self.check([name], shape)
        if name in self.unread:
            self.unread.discard(name)
            self._count(stored.nbytes)
        return StoredEmbeddings(stored, self._files.open(name), self.dtype)

    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[StoredTensor]:
        """Return where tensors lie, as PartsReader.check."""
        parts = [self._stored(name) for name in names]
        shapes = [part.shape for part in parts]
        is_joinable = all(one and one[1:] == shapes[0][1:] for one in shapes)
        whole = [sum(one[0] for one in shapes), *shapes[0][1:]] if is_joinable else [*map(list, shapes)]
        if whole != list(shape):
            raise ModelError(
                f"The weights {', '.join(names)} have the shape {whole}; config.json asks for {list(shape)}."
            )
        return parts

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the names of the stored tensors that have the numbers of a tensor."""
        return (name,)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelError if it is absent."""
        return self._stored(name).shape

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._files.tensors:
            raise ModelError(
                f"The checkpoint lacks the weights {name}.",
                hint="Is it the checkpoint of a base model, an adapter, or an interrupted download?",
            )
        return self._files.tensors[name]
