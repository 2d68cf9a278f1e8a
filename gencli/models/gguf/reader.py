"""Read the weights of a GGUF file tensor by tensor, under the names of a safetensors checkpoint.

Quantized weights are widened slice by slice, so that a load needs little more memory than the widened
weights. `raw_rows` gives the stored blocks, for products that compute with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from gencli.errors import ModelError, UsageError
from gencli.files import open_regular
from gencli.models.gguf.head import GgufHead, read_gguf_head
from gencli.models.gguf.kinds import KINDS, Kind
from gencli.models.gguf.names import Place, places_of
from gencli.models.watch import OnBytes

__all__ = ["GgufReader", "check_package", "open_gguf", "widening"]

_SLICE = 2**22  # numbers that are widened at a time
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Tensors that belong to the configuration.
_OF_CONFIG = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}


class GgufReader:
    """The tensors of a file by their names in a safetensors checkpoint, converted to `dtype` on `device`."""

    def __init__(
        self,
        head: GgufHead,
        stream: BinaryIO,
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self._head, self._stream, self._dtype, self._device = head, stream, dtype, device
        self._on_bytes, self._done = on_bytes, 0
        self._total = sum(tensor.nbytes for tensor in head.tensors.values())
        self._places = places_of(head)
        self.unread = set(self._places) - _OF_CONFIG
        self._count(0)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor. Raises ModelError if it is absent or has another shape."""
        return self.joined([name], shape)

    def joined(self, names: Sequence[str], shape: Sequence[int]) -> Tensor:
        """Return tensors joined along their first dimension, [sum of first dimensions, ...]."""
        places = [self._find(name) for name in names]
        shapes = [place.shape for place in places]
        whole = (sum(one[0] for one in shapes), *shapes[0][1:])
        if whole != tuple(shape) or any(one[1:] != shapes[0][1:] for one in shapes):
            raise ModelError(
                f"{self._head.path}: {', '.join(place.tensor.name for place in places)} has the shape "
                f"{list(whole)}; the metadata asks for {list(shape)}."
            )
        made = torch.empty(whole, dtype=self._dtype, device=self._device)
        for place, target in zip(places, torch.split(made, [one[0] for one in shapes]), strict=True):
            self._fill(place, target)
        self.unread.difference_update(names)
        return made

    def raw_rows(self, place: Place) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
        """Yield the stored bytes [rows, bytes of a row] slice by slice, in the checkpoint's order of rows."""
        rows, row_bytes, values = _layout(place)
        unit = rows // place.heads if place.heads else 1
        step = max(1, _SLICE // values // unit) * unit
        start = place.tensor.start + place.first * row_bytes
        for row in range(0, rows, step):
            count = min(step, rows - row)
            found = self._bytes(start + row * row_bytes, count * row_bytes).reshape(count, row_bytes)
            self._count(found.nbytes)
            # The file has row j of both halves of a head side by side, the checkpoint half after half.
            halves = found.reshape(-1, unit // 2, 2, row_bytes).swapaxes(1, 2) if place.heads else found
            yield halves.reshape(count, row_bytes)

    def _fill(self, place: Place, target: Tensor) -> None:
        """Widen rows of the file into `target`."""
        flat, done = target.view(-1), 0
        for rows in self.raw_rows(place):
            made = _widened(rows, place.tensor.kind).view(-1)
            if place.added:
                made = made.float() - place.added
            flat[done : done + len(made)].copy_(made)
            done += len(made)

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

    def _bytes(self, start: int, count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        try:
            self._stream.seek(start)
            found = np.fromfile(self._stream, np.uint8, count)
        except OSError as error:
            raise ModelError(f"{self._head.path} cannot be read: {error.strerror}.") from None
        if len(found) != count:
            raise ModelError(
                f"{self._head.path} ends within a tensor.", hint="Was it replaced while it was read?"
            )
        return found

    def _count(self, nbytes: int) -> None:
        self._done += nbytes
        if self._on_bytes:
            self._on_bytes(self._done, self._total)


@contextmanager
def open_gguf(
    path: Path, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
) -> Iterator[GgufReader]:
    """Open a file for reading its weights. Raises ModelError for a damaged file, UsageError without gguf."""
    check_package()
    head = read_gguf_head(path)
    try:
        stream = open_regular(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    with stream:
        yield GgufReader(head, stream, dtype, device, on_bytes)


def check_package() -> None:
    """Raise UsageError if the package that widens quantized weights is not installed."""
    try:
        import gguf  # noqa: F401
    except ImportError:
        raise UsageError("GGUF files need the package gguf.", hint="pip install 'gencli[gguf]'") from None


def widening(path: Path, dtype: torch.dtype) -> tuple[str, ...]:
    """Return the notice that quantized weights take more memory than the file, if there are any."""
    tensors = read_gguf_head(path).tensors.values()
    kinds = sorted({tensor.kind.name for tensor in tensors if tensor.kind.is_quantized})
    if not kinds:
        return ()
    size = sum(math.prod(tensor.shape) for tensor in tensors) * dtype.itemsize / 2**30
    name = str(dtype).removeprefix("torch.")
    verb = "is" if len(kinds) == 1 else "are"
    return (f"{' and '.join(kinds)} {verb} widened to {name}: {size:.1f} GiB",)


def _layout(place: Place) -> tuple[int, int, int]:
    """Return rows, bytes of a row, and values of a row. A vector of plain numbers has a row for each."""
    kind = place.tensor.kind
    if len(place.shape) == 1:
        rows, values = (1, place.shape[0]) if kind.is_quantized else (place.shape[0], 1)
    else:
        rows, values = math.prod(place.shape[:-1]), place.shape[-1]
    return rows, values // kind.values * kind.nbytes, values


def _widened(rows: np.ndarray[Any, np.dtype[np.uint8]], kind: Kind) -> Tensor:
    """Return stored rows [rows, bytes] as numbers [rows, values]: plain ones as they are, else float32."""
    if kind.name in _PLAIN:
        return torch.from_numpy(np.ascontiguousarray(rows)).view(_PLAIN[kind.name])
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind.name]))
