"""Read the weights of a GGUF file tensor by tensor, under the names of a safetensors checkpoint.

Quantized weights are widened slice by slice, so that a load needs little more memory than the widened
weights. `stored_rows` gives the blocks as they are stored, for products that compute with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.decoder.embeddings import Embeddings
from gencli.models.decoder.reader import PartsReader
from gencli.models.gguf.embeddings import GgufEmbeddings
from gencli.models.gguf.head import GgufHead, read_gguf_head
from gencli.models.gguf.kinds import KINDS, Kind
from gencli.models.gguf.names import Place, places_of
from gencli.models.gguf.widen import Rows, widened
from gencli.models.watch import OnBytes

__all__ = ["GgufReader", "open_gguf"]

_SLICE = 2**22  # numbers that are widened at a time
# Tensors that belong to the configuration.
_OF_CONFIG = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


class GgufReader(PartsReader[Place]):
    """The tensors of a file by their names in a safetensors checkpoint, converted to `dtype` on `device`."""

    def __init__(
        self,
        head: GgufHead,
        streams: Mapping[Path, BinaryIO],
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self._head, self._streams, self._places = head, streams, places_of(head)
        nbytes = sum(tensor.nbytes for tensor in head.tensors.values())
        super().__init__(set(self._places) - _OF_CONFIG, nbytes, dtype, device, on_bytes)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def kind(self, name: str) -> Kind:
        """Return the number format of a tensor. Raises ModelError if it is absent or cannot be read."""
        return self._find(name).tensor.kind

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelError if it is absent or cannot be read."""
        return self._find(name).shape

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        """Yield widened slices [rows, in] of joined matrices, as WeightReader.slices."""
        for place in self.check(names, shape):
            yield from self._wide_rows(place)
        self.unread.difference_update(names)

    def stored_rows(self, names: Sequence[str], shape: Sequence[int]) -> Iterator[tuple[Kind, Rows]]:
        """Yield rows of joined matrices as they are stored, slice by slice, with their number format.

        They are [rows, bytes of a row], in the checkpoint's order. Raises ModelError for another shape.
        """
        for place in self.check(names, shape):
            for rows in self._raw_rows(place):
                yield place.tensor.kind, rows
        self.unread.difference_update(names)

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        """Return embeddings [V, H] whose rows stay in the file until they are looked up."""
        (place,) = self.check([name], shape)
        if name in self.unread:
            self.unread.discard(name)
            self._count(place.tensor.nbytes)
        return GgufEmbeddings(place.tensor, open_regular(place.tensor.path), self.dtype)

    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[Place]:
        """Return where tensors lie, as PartsReader.check."""
        places = [self._find(name) for name in names]
        shapes = [place.shape for place in places]
        whole = (sum(one[0] for one in shapes), *shapes[0][1:])
        if whole != tuple(shape) or any(one[1:] != shapes[0][1:] for one in shapes):
            held = ", ".join(str(list(one)) for one in shapes)
            raise ModelError(
                f"{self._head.path}: {', '.join(place.tensor.name for place in places)} "
                f"{'have the shapes' if shapes[1:] else 'has the shape'} {held}; the metadata asks for "
                f"{list(shape)}{' together' if shapes[1:] else ''}."
            )
        return places

    def _raw_rows(self, place: Place) -> Iterator[Rows]:
        """Yield the stored bytes [rows, bytes of a row] slice by slice, in the checkpoint's order of rows."""
        rows, row_bytes, values = _layout(place)
        unit = rows // place.heads if place.heads else 1
        step = max(1, _SLICE // values // unit) * unit
        start = place.tensor.start + place.first * row_bytes
        for row in range(0, rows, step):
            count = min(step, rows - row)
            found = self._bytes(place.tensor.path, start + row * row_bytes, count * row_bytes)
            self._count(found.nbytes)
            # The file has row j of both halves of a head side by side, the checkpoint half after half.
            if place.heads:
                found = found.reshape(-1, unit // 2, 2, row_bytes).swapaxes(1, 2)
            yield found.reshape(count, row_bytes)

    def _fill(self, part: Place, target: Tensor) -> None:
        """Widen rows of the file into `target`."""
        flat, done = target.view(-1), 0
        for rows in self._wide_rows(part):
            made = rows.view(-1)
            flat[done : done + len(made)].copy_(made)
            done += len(made)

    def _wide_rows(self, place: Place) -> Iterator[Tensor]:
        """Yield the numbers [rows, values] slice by slice, in the checkpoint's order of rows."""
        for rows in self._raw_rows(place):
            made = widened(rows, place.tensor.kind)
            yield made.float() - place.added if place.added else made

    def _find(self, name: str) -> Place:
        place = self._places.get(name)
        if place is None:
            raise ModelError(
                f"{self._head.path} lacks the weights {name}.", hint="Is it an adapter, or part of a model?"
            )
        kind = place.tensor.kind
        if not kind.nbytes:
            known = ", ".join(sorted(known.name for known in KINDS.values()))
            raise ModelError(
                f"{self._head.path}: {place.tensor.name} has the format {kind.name}, which is not read.",
                hint=f"gencli reads {known}.",
            )
        if place.heads and (place.shape[0] % (2 * place.heads) or _layout(place)[0] != place.shape[0]):
            raise ModelError(f"{self._head.path}: {place.tensor.name} does not fit its heads.")
        return place

    def _bytes(self, path: Path, start: int, count: int) -> Rows:
        try:
            self._streams[path].seek(start)
            found = np.fromfile(self._streams[path], np.uint8, count)
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
        if len(found) != count:
            raise ModelError(f"{path} ends within a tensor.", hint="Was it replaced while it was read?")
        return found


@contextmanager
def open_gguf(
    path: Path, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[GgufReader]:
    """Open a file, or all parts of one, for reading its weights.

    Raises ModelError for a damaged file.
    """
    head = read_gguf_head(path)
    with ExitStack() as stack:
        streams: dict[Path, BinaryIO] = {}
        for file in {tensor.path for tensor in head.tensors.values()}:
            try:
                streams[file] = stack.enter_context(open_regular(file))
            except OSError as error:
                raise ModelError(f"{file} cannot be read: {error.strerror}.") from None
        yield GgufReader(head, streams, dtype, device, on_bytes)


def _layout(place: Place) -> tuple[int, int, int]:
    """Return rows, bytes of a row, and values of a row. A vector of plain numbers has a row for each."""
    kind = place.tensor.kind
    if len(place.shape) == 1:
        rows, values = (1, place.shape[0]) if kind.is_quantized else (place.shape[0], 1)
    else:
        rows, values = math.prod(place.shape[:-1]), place.shape[-1]
    return rows, values // kind.values * kind.nbytes, values
