"""Read the weights of a checkpoint tensor by tensor, straight from safetensors files into the memory where
they are used: the interface for any file format, embeddings that stay in their file, and experts that
lie in one tensor each for gates and up, and for down.
"""

from __future__ import annotations

import math
import os
import re
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.decoder.decoder_layers import Embeddings
from gencli.models.decoder.products.dense_products import WeightPart, widened_mxfp4
from gencli.models.files.gguf_header import GgufTensor
from gencli.models.files.model_files import BLOCKS, MIN_STORED, SCALES, OnBytes, StoredTensor


class WeightReader(ABC):
    """Tensors by name, as numbers of one dtype on one device, read into the memory that they are used in.

    `unread` are the names that were not read. `free` [N] is memory for the next product's weights, if any.
    `on_bytes` is called with the bytes read so far, and with all of them, `nbytes`.
    """

    def __init__(
        self,
        names: Iterable[str],
        nbytes: int,
        dtype: torch.dtype,
        device: torch.device,
        on_bytes: OnBytes | None,
    ) -> None:
        self.unread, self.dtype, self.device = set(names), dtype, device
        self.free: Tensor | None = None
        self._on_bytes, self._done, self._total = on_bytes, 0, nbytes
        self._count(0)

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[Any]:
        """Return where tensors lie in files; each source has the tensor's `shape`.

        Raises ModelError if one is absent, or if joined they have another shape than `shape`.
        """

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
        targets = torch.split(joined, [part.shape[0] for part in parts])
        for part, target in zip(parts, targets, strict=True):
            self._fill(part, target)
        self.unread.difference_update(names)
        return joined

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelError if it is absent."""

    @abstractmethod
    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        """Yield slices [rows, in] of joined matrices [out, in], to be quantized, valid until the next one.

        They lie on the CPU and have the digits that are stored, whatever the dtype of the states is.
        Raises ModelError as `read` does.
        """

    @abstractmethod
    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        """Return embeddings [V, H] that stay in their file. Raises ModelError as `read` does."""

    def codes(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Tensor, ...] | None:
        """Return joined matrices [out, in] in the file's codes and scales, as a GroupedProduct takes them.

        None for numbers, and for codes that it does not take. Raises ModelError as `read` does.
        """
        return None

    @abstractmethod
    def _fill(self, part: Any, target: Tensor) -> None:
        """Read a tensor, of which `check` has returned the source, into `target`."""

    def _count(self, nbytes: int) -> None:
        self._done += nbytes
        if self._on_bytes:
            self._on_bytes(self._done, self._total)


SLICE = 2**19  # numbers in a slice of a matrix, which the CPU's cache holds


class SafetensorsReader(WeightReader):
    """The tensors of safetensors files, each converted to `dtype` on `device`; no copy stays behind."""

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
        inputs, parts = shape[1], self.check(names, shape)
        scratch = torch.empty(max(1, SLICE // max(1, inputs)), inputs)
        for name, part in zip(names, parts, strict=True):
            for start in range(0, part.shape[0], len(scratch)):
                rows = scratch[: part.shape[0] - start]
                self._files.read_into(name, rows, self._count, start * inputs)
                yield rows
        self.unread.difference_update(names)

    def stored(
        self, names: Sequence[str], shape: Sequence[int], dtype: torch.dtype, *, memory: Tensor | None = None
    ) -> Tensor:
        """Return joined tensors that are stored in `dtype`. Raises ModelError for another one.

        `memory` [N] is used for them as in `joined`.
        """
        for name in names:
            self._check_format(name, dtype)
        return self.joined(names, shape, dtype=dtype, memory=memory)

    def stored_slices(self, name: str, parts: Sequence[WeightPart]) -> Iterator[tuple[Tensor, ...]]:
        """Yield slices of rows of the tensors that a matrix is stored as. Raises ModelError as `stored`."""
        names = [name + part.suffix for part in parts]
        for part_name, part in zip(names, parts, strict=True):
            self.check([part_name], part.shape)
            self._check_format(part_name, part.dtype)
        count, inputs = parts[0].shape[0], parts[0].shape[-1]
        step = max(1, SLICE // max(1, inputs))
        for start in range(0, count, step):
            tensors = list[Tensor]()
            for part_name, part in zip(names, parts, strict=True):
                row = part.shape[1:]
                tensors.append(torch.empty(min(step, count - start), *row, dtype=part.dtype))
                self._files.read_into(part_name, tensors[-1], self._count, start * math.prod(row))
            yield tuple(tensors)
        self.unread.difference_update(names)

    def _check_format(self, name: str, dtype: torch.dtype) -> None:
        """Raise ModelError for a tensor that is stored in another format."""
        if (kind := dtype_of(self._stored(name))) != dtype:
            held, wanted = (str(one).removeprefix("torch.") for one in (kind, dtype))
            raise ModelError(f"The weights {name} are stored as {held}, but have to be {wanted}.")

    def embeddings(self, name: str, shape: Sequence[int]) -> Embeddings:
        (stored,) = self.check([name], shape)
        if name in self.unread:
            self.unread.discard(name)
            self._count(stored.nbytes)
        return StoredEmbeddings(stored, self._files.open(name), self.dtype)

    def check(self, names: Sequence[str], shape: Sequence[int]) -> list[StoredTensor]:
        parts = [self._stored(name) for name in names]
        shapes = [part.shape for part in parts]
        is_joinable = all(dims and dims[1:] == shapes[0][1:] for dims in shapes)
        whole = [sum(dims[0] for dims in shapes), *shapes[0][1:]] if is_joinable else [*map(list, shapes)]
        if whole != list(shape):
            raise ModelError(
                f"The weights {', '.join(names)} have the shape {whole}; config.json asks for {list(shape)}."
            )
        return parts

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the names of the stored tensors that have the numbers of a tensor."""
        return (name,)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._stored(name).shape

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._files.tensors:
            raise ModelError(
                f"The checkpoint lacks the weights {name}.",
                hint="Is it the checkpoint of a base model, an adapter, or an interrupted download?",
            )
        return self._files.tensors[name]


_NAME = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.(weight|bias)")
# The joined tensor, and where the outputs of one lie among those of the joined one: first and step.
_PLACES = {"gate": ("gate_up_proj", 0, 2), "up": ("gate_up_proj", 1, 2), "down": ("down_proj", 0, 1)}


@dataclass(frozen=True, slots=True)
class _ExpertSource:
    """Where the tensor of an expert lies: in the joined `tensors`, a weight or codes with their scales."""

    tensors: tuple[StoredTensor, ...]
    expert: int
    first: int
    step: int
    is_transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the joined tensor of this expert, [out, in] or [out]."""
        stored = self.tensors[0].shape[1:]
        if len(self.tensors) == 2:
            return stored[0], stored[1] * stored[2] * 2
        return tuple(reversed(stored)) if self.is_transposed else stored


class JoinedExpertsReader(SafetensorsReader):
    """Reads tensors of experts out of joined ones.

    The last joined tensor of an expert is kept, as its gates are read before its up.
    """

    _kept: tuple[tuple[str, int], tuple[Tensor, ...]] | None = None

    def sources(self, name: str) -> tuple[str, ...]:
        source = self._source(name)
        return (name,) if source is None else tuple(stored.name for stored in source.tensors)

    def slices(self, names: Sequence[str], shape: tuple[int, int]) -> Iterator[Tensor]:
        if not any(map(self._source, names)):
            yield from super().slices(names, shape)
            return
        rows = max(1, SLICE // max(1, shape[1]))
        for part in self.check(names, shape):
            whole = torch.empty(part.shape)
            self._fill(part, whole)
            yield from torch.split(whole, rows)
            self._read(part.name)

    def joined(self, names: Sequence[str], shape: Sequence[int], **options: Any) -> Tensor:
        tensor = super().joined(names, shape, **options)
        for name in names:
            self._read(name)
        return tensor

    def codes(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Tensor, ...] | None:
        """Return the codes [out, in / 2] and scales [out, in / 32] of matrices in MXFP4.

        None between states of 32 bits, with which no kernel multiplies codes.
        """
        sources = [self._source(name) for name in names]
        if self.dtype.itemsize != 2 or any(source is None or len(source.tensors) == 1 for source in sources):
            return None
        (outputs, inputs), first = shape, 0
        self.check(names, shape)
        sizes = (inputs // 2, inputs // 32)
        joined = tuple(torch.empty(outputs, size, dtype=torch.uint8, device=self.device) for size in sizes)
        for name, source in zip(names, sources, strict=True):
            assert source is not None
            parts = [part[source.first :: source.step].flatten(1) for part in self._parts(source)]
            for target, part in zip(joined, parts, strict=True):
                target[first : first + len(part)] = part
            first += len(parts[0])
            self._read(name)
        return joined

    def _read(self, name: str) -> None:
        self.unread.difference_update(self.sources(name))

    def _fill(self, part: StoredTensor, target: Tensor) -> None:
        source = self._source(part.name)
        if source is None:
            super()._fill(part, target)
            return
        whole, *scales = self._parts(source)
        rows = (whole.t() if source.is_transposed else whole)[source.first :: source.step]
        target.copy_(widened_mxfp4(rows, scales[0][source.first :: source.step]) if scales else rows)

    def _stored(self, name: str) -> StoredTensor:
        source = self._source(name)
        if source is None:
            return super()._stored(name)
        outputs, *inputs = source.shape
        return replace(source.tensors[0], name=name, shape=(outputs // source.step, *inputs))

    def _source(self, name: str) -> _ExpertSource | None:
        """Return where a tensor of an expert lies in joined ones; None for a tensor by its own name."""
        match = None if name in self._files.tensors else _NAME.fullmatch(name)
        if match is None:
            return None
        prefix, number, projection, kind = match.groups()
        joined, first, step = _PLACES[projection]
        whole, tensors = f"{prefix}.{joined}", self._files.tensors
        if kind == "bias":
            names: tuple[str, ...] = (f"{whole}_bias",)
        else:
            names = (whole + BLOCKS, whole + SCALES) if whole + BLOCKS in tensors else (whole,)
        held = tuple(super(JoinedExpertsReader, self)._stored(stored_name) for stored_name in names)
        sides = {"bias": 2, "weight": 3 if len(held) == 1 else 4}[kind]
        if len(held[0].shape) != sides or int(number) >= held[0].shape[0] or held[0].shape[1] % step:
            raise ModelError(f"The weights {held[0].name} have the shape {list(held[0].shape)}.")
        return _ExpertSource(
            held, int(number), first, step, is_transposed=kind == "weight" and len(held) == 1
        )

    def _parts(self, source: _ExpertSource) -> tuple[Tensor, ...]:
        key = source.tensors[0].name, source.expert
        if self._kept is None or self._kept[0] != key:
            self._kept = None  # its memory is free for the next one
            parts = tuple(torch.empty(each.shape[1:], dtype=dtype_of(each)) for each in source.tensors)
            for stored, part in zip(source.tensors, parts, strict=True):
                self._files.read_into(stored.name, part, self._count, source.expert * part.numel())
            self._kept = key, parts
        return self._kept[1]


class StoredEmbeddings(Embeddings):
    """Rows of a matrix [V, H] in a file, read when they are looked up; `dtype` is that of the result.

    A token reads one row, so the matrix need not be held in memory. `numbers` makes numbers [N, H] of stored
    rows [N, bytes]; a tensor of safetensors files has its own.
    """

    nbytes = 0
    device = torch.device("cpu")

    def __init__(
        self,
        stored: StoredTensor | GgufTensor,
        stream: BinaryIO,
        dtype: torch.dtype,
        numbers: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.dtype, self._stored, self._stream = dtype, stored, stream
        if isinstance(stored, StoredTensor):
            numbers = partial(Tensor.view, dtype=dtype_of(stored))
        assert numbers is not None
        self._numbers = numbers
        self._row_bytes = stored.nbytes // stored.shape[0]
        weakref.finalize(self, stream.close)
        if hasattr(os, "posix_fadvise"):  # the rows of the first prompt are not read from the disk one by one
            os.posix_fadvise(stream.fileno(), stored.start, stored.nbytes, os.POSIX_FADV_WILLNEED)

    def __call__(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N]. Raises ModelError if the file has become shorter."""
        rows = torch.empty(len(ids), self._row_bytes, dtype=torch.uint8)
        for target, number in zip(rows, ids.tolist(), strict=True):
            read_bytes(self._stream, self._stored.start + number * self._row_bytes, target)
        return self._numbers(rows).to(self.dtype)


def stays_in_file(nbytes: int, device: torch.device) -> bool:
    """Return whether embeddings of `nbytes` bytes, which no product shares, are left in their file."""
    return device.type == "cpu" and nbytes >= MIN_STORED


NUMBER_FORMATS: dict[str, torch.dtype] = {
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
_MIN_PIECE, _MAX_THREADS = 2**20, 4  # bytes of a piece that a thread reads, and threads


class TensorFiles:
    """The tensors of safetensors files, by name.

    Threads read the parts of a piece side by side, because one thread does not use all of the memory's speed;
    each has a stream of its own. A thread that computes alone reads alone.
    """

    def __init__(self, tensors: Mapping[str, StoredTensor], stack: ExitStack) -> None:
        self.tensors = tensors
        self._num_threads = min(_MAX_THREADS, torch.get_num_threads())
        self._threads = stack.enter_context(ThreadPoolExecutor(self._num_threads))
        # Only the file that is read is open: a checkpoint may have more files than a process may open.
        self._opened, self._file = stack.enter_context(ExitStack()), Path()
        self._streams: list[BinaryIO] = []

    def read_into(self, name: str, target: Tensor, on_read: Callable[[int], None], first: int = 0) -> None:
        """Fill `target`, contiguous, with the numbers of the tensor from number `first` on, as its dtype.

        `on_read` is called with the bytes of each piece. Raises ModelError if the file ends early.
        """
        stored, dtype = self.tensors[name], dtype_of(self.tensors[name])
        offset, scratch = stored.start + first * dtype.itemsize, None
        if target.dtype != dtype or target.device.type != "cpu":
            scratch = torch.empty(min(target.numel() * dtype.itemsize, _PIECE), dtype=torch.uint8)
        for part in torch.split(target.view(-1), _PIECE // dtype.itemsize):
            count = len(part) * dtype.itemsize
            piece = part.view(torch.uint8) if scratch is None else scratch[:count]
            self._read(stored.file, offset, piece)
            if scratch is not None:
                part.copy_(piece.view(dtype))
            offset += count
            on_read(count)

    def open(self, name: str) -> BinaryIO:
        """Return a stream of the file that holds the tensor; the caller closes it."""
        return _open(self.tensors[name].file)

    def _read(self, file: Path, offset: int, piece: Tensor) -> None:
        """Fill `piece` [N], uint8, with the bytes from `offset` on."""
        if file != self._file:
            self._opened.close()
            self._streams = [self._opened.enter_context(_open(file)) for _ in range(self._num_threads)]
            self._file = file
        streams = self._streams[: torch.get_num_threads()]
        parts = torch.split(piece, max(_MIN_PIECE, -(-len(piece) // len(streams))))
        if len(parts) == 1:
            read_bytes(streams[0], offset, piece)
            return
        offsets = [offset]
        for part in parts:
            offsets.append(offsets[-1] + len(part))
        for _ in self._threads.map(read_bytes, streams[: len(parts)], offsets, parts):
            pass


@contextmanager
def open_tensors(tensors: Mapping[str, StoredTensor]) -> Iterator[TensorFiles]:
    with ExitStack() as stack:
        yield TensorFiles(tensors, stack)


def dtype_of(stored: StoredTensor) -> torch.dtype:
    """Return the dtype of a stored tensor. Raises ModelError for a format that is not read."""
    dtype = NUMBER_FORMATS.get(stored.format)
    if dtype is None:
        raise ModelError(
            f"{stored.file}: {stored.name} has the number format {stored.format!r}, which is unknown."
        )
    return dtype


def read_bytes(stream: BinaryIO, offset: int, target: Tensor) -> None:
    """Fill `target` [N], uint8 on the CPU, with the bytes from `offset` on. Raises ModelError at the end."""
    numbers: Any = target.numpy()
    view, done = memoryview(numbers), 0
    try:
        stream.seek(offset)
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
