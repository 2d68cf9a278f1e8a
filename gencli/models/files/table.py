"""Where the tensors of safetensors files lie, from the files' headers alone, without PyTorch."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gencli.errors import ModelError
from gencli.files import open_regular

__all__ = ["StoredTensor", "read_table"]

_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors format
# Bytes of a number, by format. The size of tensors of other formats is not checked.
_WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"), 1),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `start` is the offset of its first byte in `file`, `nbytes` its length there.

    `format` is the number format as the file names it: F32, BF16, I8...
    """

    name: str
    file: Path
    format: str
    shape: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def count(self) -> int:
        """The number of numbers."""
        return math.prod(self.shape)


def read_table(files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of all files by name, those of a file in the order of their bytes.

    Raises ModelError for a damaged file: a header that is none, or whose offsets leave the file, overlap, or
    do not match format and shape.
    """
    return {stored.name: stored for file in files for stored in _tensors_of(file)}


def _tensors_of(file: Path) -> list[StoredTensor]:
    head, start, size = _read_head(file)
    found, last = [], start
    for name, entry in sorted(head.items(), key=lambda item: _range(file, *item)):
        begin, end = (start + offset for offset in _range(file, name, entry))
        stored = StoredTensor(name, file, entry["dtype"], tuple(entry["shape"]), begin, end - begin)
        needed = stored.count * _WIDTHS[stored.format] if stored.format in _WIDTHS else stored.nbytes
        if stored.nbytes != needed:
            raise _damaged(file, f"{name} has {stored.nbytes} bytes, its shape needs {needed}")
        if begin < last or end > size:
            raise _damaged(file, f"{name} overlaps another tensor or the end of the file")
        found.append(stored)
        last = end
    return found


def _read_head(file: Path) -> tuple[Mapping[str, Any], int, int]:
    """Return the header of a file, the offset of the first byte behind it, and the size of the file.

    The header is its length in eight bytes, then JSON. Raises ModelError for a damaged file.
    """
    try:
        with open_regular(file) as stream:
            head, start = _table(stream)
            return head, start, stream.seek(0, os.SEEK_END)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(file, str(error)) from None


def _table(stream: BinaryIO) -> tuple[Mapping[str, Any], int]:
    length = int.from_bytes(stream.read(8), "little")
    if not 0 < length <= _MAX_HEADER_BYTES:
        raise ValueError("its head has no length")
    head = json.loads(stream.read(length))
    head.pop("__metadata__", None)
    if not all(map(_is_tensor, head.values())):
        raise ValueError("its head is no table of tensors")
    return head, 8 + length


def _is_tensor(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape = entry.get("shape")
    return isinstance(shape, list) and all(isinstance(side, int) and side >= 0 for side in shape)


def _range(file: Path, name: str, entry: Mapping[str, Any]) -> tuple[int, int]:
    match entry.get("data_offsets"):
        case [int(begin), int(end)] if 0 <= begin <= end:
            return begin, end
    raise _damaged(file, f"{name} has no offsets")


def _damaged(file: Path, reason: str) -> ModelError:
    return ModelError(f"{file} is damaged: {reason}.", hint="Download it again.")
