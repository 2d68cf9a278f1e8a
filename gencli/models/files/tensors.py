"""Read tensors of safetensors files by their offsets, straight into the memory where they are used.

Pages of a mapped file count as memory of the process, beside the tensors that are made of them. Bytes that
are read count once, as part of the tensor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.files.card import read_head

__all__ = ["StoredTensor", "TensorFiles", "open_tensors", "read_bytes", "tensors_of"]

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_PIECE = 2**24  # bytes; progress is reported after each piece
_LEAST, _MOST_THREADS = 2**20, 4  # bytes of a piece that a thread reads, and threads


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `start` is the offset of its first byte in `file`."""

    name: str
    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def nbytes(self) -> int:
        """The number of bytes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFiles:
    """The tensors of safetensors files, by name.

    Threads read the parts of a piece side by side, because one thread does not use all of the memory's speed;
    each has a stream of its own.
    """

    def __init__(self, files: Sequence[Path], stack: ExitStack) -> None:
        found = [stored for file in files for stored in tensors_of(file)]
        self.tensors: Mapping[str, StoredTensor] = {stored.name: stored for stored in found}
        self._num_threads = min(_MOST_THREADS, torch.get_num_threads())
        self._threads = stack.enter_context(ThreadPoolExecutor(self._num_threads))
        # Only the file that is read is open: a checkpoint may have more files than a process may open.
        self._opened, self._file = stack.enter_context(ExitStack()), Path()
        self._streams: list[BinaryIO] = []

    def read_into(self, name: str, target: Tensor, on_read: Callable[[int], None]) -> None:
        """Fill `target`, contiguous and of the shape of the tensor, converting its dtype.

        `on_read` is called with the bytes of each piece. Raises ModelError if the file ends early.
        """
        stored = self.tensors[name]
        place, scratch = stored.start, None
        if target.dtype != stored.dtype or target.device.type != "cpu":
            scratch = torch.empty(min(stored.nbytes, _PIECE), dtype=torch.uint8)
        for part in torch.split(target.view(-1), _PIECE // stored.dtype.itemsize):
            count = len(part) * stored.dtype.itemsize
            piece = part.view(torch.uint8) if scratch is None else scratch[:count]
            self._read(stored.file, place, piece)
            if scratch is not None:
                part.copy_(piece.view(stored.dtype))
            place += count
            on_read(count)

    def open(self, name: str) -> BinaryIO:
        """Return a stream of the file that holds the tensor; the caller closes it."""
        return _open(self.tensors[name].file)

    def _read(self, file: Path, place: int, piece: Tensor) -> None:
        """Fill `piece` [N], uint8, with the bytes from `place` on."""
        if file != self._file:
            self._opened.close()
            self._streams = [self._opened.enter_context(_open(file)) for _ in range(self._num_threads)]
            self._file = file
        streams = self._streams
        parts = torch.split(piece, max(_LEAST, -(-len(piece) // len(streams))))
        places = [place]
        for part in parts:
            places.append(places[-1] + len(part))
        for _ in self._threads.map(read_bytes, streams[: len(parts)], places, parts):
            pass


@contextmanager
def open_tensors(files: Sequence[Path]) -> Iterator[TensorFiles]:
    """Open files for reading. Raises ModelError for a damaged one."""
    with ExitStack() as stack:
        yield TensorFiles(files, stack)


def tensors_of(file: Path) -> list[StoredTensor]:
    """Return the tensors of a file in the order of their bytes.

    Raises ModelError for a header whose offsets leave the file, overlap, or do not match dtype and shape.
    """
    head = read_head(file)
    with _open(file) as stream:
        start, size = 8 + int.from_bytes(stream.read(8), "little"), stream.seek(0, os.SEEK_END)
    found, last = [], start
    for name, entry in sorted(head.items(), key=lambda item: _range(file, *item)):
        begin, end = (start + offset for offset in _range(file, name, entry))
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            raise _damaged(file, f"{name} has the number format {entry['dtype']!r}, which is unknown")
        stored = StoredTensor(name, file, dtype, tuple(entry["shape"]), begin)
        if end - begin != stored.nbytes:
            raise _damaged(file, f"{name} has {end - begin} bytes, its shape needs {stored.nbytes}")
        if begin < last or end > size:
            raise _damaged(file, f"{name} overlaps another tensor or the end of the file")
        found.append(stored)
        last = end
    return found


def read_bytes(stream: BinaryIO, place: int, target: Tensor) -> None:
    """Fill `target` [N], uint8 on the CPU, with the bytes from `place` on. Raises ModelError at the end."""
    numbers: Any = target.numpy()
    view, done = memoryview(numbers), 0
    try:
        stream.seek(place)
        while done < len(view):
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise ModelError(
                    "A file of weights ends within a tensor.", hint="Was it replaced while it was read?"
                )
            done += count
    except OSError as error:
        raise ModelError(f"The weights cannot be read: {error.strerror}.") from None


def _open(file: Path) -> BinaryIO:
    """Open a file without a buffer, so that bytes go straight to where they are used."""
    try:
        with open_regular(file) as stream:
            return os.fdopen(os.dup(stream.fileno()), "rb", buffering=0)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}.") from None


def _range(file: Path, name: str, entry: Mapping[str, Any]) -> tuple[int, int]:
    match entry.get("data_offsets"):
        case [int(begin), int(end)] if 0 <= begin <= end:
            return begin, end
    raise _damaged(file, f"{name} has no offsets")


def _damaged(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file} is damaged: {reason}.", hint="Download it again.")
