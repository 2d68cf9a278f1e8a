"""Read tensors of safetensors files by their offsets, straight into the memory where they are used.

Pages of a mapped file count as memory of the process, beside the tensors that are made of them. Bytes that
are read count once, as part of the tensor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.files.table import StoredTensor

__all__ = ["TensorFiles", "dtype_of", "open_tensors", "read_bytes"]

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


class TensorFiles:
    """The tensors of safetensors files, by name.

    Threads read the parts of a piece side by side, because one thread does not use all of the memory's speed;
    each has a stream of its own. A thread that computes alone reads alone.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor], stack: ExitStack) -> None:
        self.tensors = tensors
        self._num_threads = min(_MOST_THREADS, torch.get_num_threads())
        self._threads = stack.enter_context(ThreadPoolExecutor(self._num_threads))
        # Only the file that is read is open: a checkpoint may have more files than a process may open.
        self._opened, self._file = stack.enter_context(ExitStack()), Path()
        self._streams: list[BinaryIO] = []

    def read_into(self, name: str, target: Tensor, on_read: Callable[[int], None], first: int = 0) -> None:
        """Fill `target`, contiguous, with the numbers of the tensor from number `first` on, as its dtype.

        `on_read` is called with the bytes of each piece. Raises ModelError if the file ends early.
        """
        stored, dtype = self.tensors[name], dtype_of(self.tensors[name])
        place, scratch = stored.start + first * dtype.itemsize, None
        if target.dtype != dtype or target.device.type != "cpu":
            scratch = torch.empty(min(target.numel() * dtype.itemsize, _PIECE), dtype=torch.uint8)
        for part in torch.split(target.view(-1), _PIECE // dtype.itemsize):
            count = len(part) * dtype.itemsize
            piece = part.view(torch.uint8) if scratch is None else scratch[:count]
            self._read(stored.file, place, piece)
            if scratch is not None:
                part.copy_(piece.view(dtype))
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
        streams = self._streams[: torch.get_num_threads()]
        parts = torch.split(piece, max(_LEAST, -(-len(piece) // len(streams))))
        if len(parts) == 1:
            read_bytes(streams[0], place, piece)
            return
        places = [place]
        for part in parts:
            places.append(places[-1] + len(part))
        for _ in self._threads.map(read_bytes, streams[: len(parts)], places, parts):
            pass


@contextmanager
def open_tensors(tensors: Mapping[str, StoredTensor]) -> Iterator[TensorFiles]:
    """Open the files of tensors for reading."""
    with ExitStack() as stack:
        yield TensorFiles(tensors, stack)


def dtype_of(stored: StoredTensor) -> torch.dtype:
    """Return the dtype of a stored tensor. Raises ModelError for a format that is not read."""
    dtype = _DTYPES.get(stored.format)
    if dtype is None:
        raise ModelError(
            f"{stored.file}: {stored.name} has the number format {stored.format!r}, which is unknown."
        )
    return dtype


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
