"""Read the header of a GGUF file: metadata by key, and where each tensor lies.

The layout (versions 2 and 3, little-endian) is: "GGUF", version, number of tensors, number of metadata
values, the values, the tensors' names, shapes, formats and offsets, then the data. Arrays stay in the file
until they are asked for. Every length is checked against the file before anything is read by it.

A model may be split into parts NAME-00001-of-00003.gguf and so on (llama-gguf-split): each is a file of its
own with the keys split.no, split.count and split.tensors.count. The metadata are those of the first.

Source: the GGUF specification (docs/gguf.md of ggml-org/ggml).
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from gencli.errors import ModelError
from gencli.models.gguf.cursor import HINT, Cursor, GgufArray, mapped, shortest
from gencli.models.gguf.kinds import Kind, kind_of

__all__ = ["CHAT_TEMPLATE", "PART", "GgufHead", "GgufTensor", "is_gguf", "read_gguf_head"]

CHAT_TEMPLATE = "tokenizer.chat_template"  # the key of the chat template
PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)  # a file's name
_MAX_VALUES, _MAX_TENSORS, _MAX_NAME = 2**16, 2**17, 2**10
_MOST = 2**31 - 1
_T = TypeVar("_T", str, bool, int, float)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor: its shape with the row length last, and its bytes in the file `path`."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    start: int
    nbytes: int
    path: Path


@dataclass(frozen=True)
class GgufHead:
    """The header of a file, or of all parts of a model: `path` is then the first, `files` are all.

    Methods return a metadata value, or None without one. They raise ModelError for a value of another type.
    """

    path: Path
    values: Mapping[str, str | bool | int | float | GgufArray]
    tensors: Mapping[str, GgufTensor]
    files: tuple[Path, ...]

    def text(self, key: str) -> str | None:
        """Return a text."""
        return self._value(key, str, "a text")

    def flag(self, key: str) -> bool | None:
        """Return true or false."""
        return self._value(key, bool, "true or false")

    def count(self, key: str) -> int | None:
        """Return a whole number from 0 to 2^31 - 1."""
        found = self._value(key, int, "a whole number")
        if found is not None and not 0 <= found <= _MOST:
            raise self.wrong(key, f"is {found}, but has to be from 0 to {_MOST}")
        return found

    def number(self, key: str) -> float | None:
        """Return a finite number: of a float32 the shortest decimal number that rounds to it."""
        found = self.values.get(key)
        if type(found) is int:
            return float(found)
        found = self._value(key, float, "a number")
        if found is not None and not math.isfinite(found):
            raise self.wrong(key, f"is {found}, but has to be a finite number")
        return found

    def texts(self, key: str) -> list[str] | None:
        """Return an array of texts."""
        found = self._array(key, "texts")
        if found is None:
            return None
        if found.code:
            raise self.wrong(key, "holds numbers, but has to hold texts")
        with mapped(self.path) as data:
            return list(Cursor(self.path, data, found.start).texts(found.count))

    def numbers(self, key: str) -> array[int] | array[float] | None:
        """Return an array of numbers."""
        found = self._array(key, "numbers")
        if found is None:
            return None
        if not found.code:
            raise self.wrong(key, "holds texts, but has to hold numbers")
        made: array[int] | array[float] = array("B" if found.code == "?" else found.code)
        with mapped(self.path) as data:
            made.frombytes(data[found.start : found.start + found.count * struct.calcsize(found.code)])
        return made

    def vector(self, name: str) -> list[float] | None:
        """Return a small float32 tensor of one dimension; None without one. Raises ModelError for another."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if len(tensor.shape) != 1 or tensor.kind.name != "F32" or tensor.shape[0] > 2**16:
            raise ModelError(f"{self.path}: the tensor {name} is no short vector in F32.", hint=HINT)
        with mapped(self.path) as data:
            values = array("f", data[tensor.start : tensor.start + tensor.nbytes])
        return [shortest(value) for value in values]

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The chat template; by name if the file has several, of which one is `default` or has no name."""
        default, prefix = self.text(CHAT_TEMPLATE), f"{CHAT_TEMPLATE}."
        keys = [key for key in self.values if key.startswith(prefix)]
        if not keys:
            return default
        named = {key.removeprefix(prefix): self.text(key) or "" for key in keys}
        return named if default is None else {"default": default, **named}

    def wrong(self, key: str, problem: str, *, hint: str = HINT) -> ModelError:
        """Return the error for a metadata value."""
        return ModelError(f"{self.path}: {key} {problem}.", hint=hint)

    def _value(self, key: str, kind: type[_T], name: str) -> _T | None:
        found = self.values.get(key)
        if found is not None and type(found) is not kind:
            shown = "an array" if isinstance(found, GgufArray) else repr(found)[:60]
            raise self.wrong(key, f"is {shown}, but has to be {name}")
        return found

    def _array(self, key: str, name: str) -> GgufArray | None:
        found = self.values.get(key)
        if found is not None and not isinstance(found, GgufArray):
            raise self.wrong(key, f"is {repr(found)[:60]}, but has to be an array of {name}")
        return found


def is_gguf(path: Path | str) -> bool:
    """Return whether a path is that of a GGUF file, by its name."""
    return str(path).lower().endswith(".gguf")


def read_gguf_head(path: Path) -> GgufHead:
    """Return the header of a file, or of all parts of a model if the file is one of them.

    Raises ModelError for a damaged file, and for a part that is missing or belongs to another model.
    """
    head = _read_file(path)
    count = head.count("split.count") or 0
    return head if count < 2 else _joined(path, count)


def _joined(path: Path, count: int) -> GgufHead:
    """Return the header of a model in `count` parts, of which `path` is one."""
    name = PART.fullmatch(path.name)
    if name is None or int(name["count"]) != count:
        raise ModelError(
            f"{path} is one of {count} parts of a model, and is not named so.",
            hint=f"Parts are named as in NAME-00001-of-{count:05d}.gguf.",
        )
    files = tuple(
        path.with_name(f"{name['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)
    )
    if absent := [file for file in files if not file.is_file()]:
        raise ModelError(
            f"{absent[0]} is missing: the model has {count} parts.", hint="All parts belong in one folder."
        )
    first, tensors = _read_file(files[0]), dict[str, GgufTensor]()
    total = first.count("split.tensors.count")
    for number, file in enumerate(files):
        part = _read_file(file)
        found = tuple(part.count(f"split.{key}") for key in ("no", "count", "tensors.count"))
        if found != (number, count, total) or tensors.keys() & part.tensors.keys():
            raise ModelError(f"{file} is not part {number + 1} of {count} of the model in {files[0]}.")
        tensors |= part.tensors
    if len(tensors) != total:
        raise ModelError(
            f"{files[0]} and its parts have {len(tensors)} tensors in place of {total}.", hint=HINT
        )
    return GgufHead(files[0], first.values, tensors, files)


def _read_file(path: Path) -> GgufHead:
    """Return the header of a file alone."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    return _read(path, (stat.st_size, stat.st_mtime_ns, stat.st_ino))


@lru_cache(maxsize=64)
def _read(path: Path, stamp: tuple[int, ...]) -> GgufHead:
    """Return the header; `stamp` changes with the file."""
    with mapped(path) as data:
        cursor = Cursor(path, data, 0)
        if len(data) < 24 or data[:4] != b"GGUF":
            raise cursor.damaged("it does not begin with GGUF")
        cursor.at = 4
        version = int(cursor.number("I"))
        if version not in (2, 3):
            what = f"has version {version} of the format" if version % 2**16 else "is big-endian"
            raise ModelError(f"{path} {what}; gencli reads little-endian files of the versions 2 and 3.")
        num_tensors, num_values = cursor.size(_MAX_TENSORS), cursor.size(_MAX_VALUES)
        values: dict[str, str | bool | int | float | GgufArray] = {}
        for _ in range(num_values):
            key = cursor.text(_MAX_NAME)
            if key in values:
                raise cursor.damaged(f"it has {key!r} twice")
            values[key] = cursor.value()
        alignment = GgufHead(path, values, {}, (path,)).count("general.alignment") or 32
        tensors = _tensors(cursor, num_tensors, alignment)
    return GgufHead(path, values, tensors, (path,))


def _tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, GgufTensor]:
    """Return the tensors with their places in the file.

    Raises ModelError if one is not inside it, or if two overlap.
    """
    found: list[tuple[str, tuple[int, ...], Kind, int]] = []
    for _ in range(count):
        name = cursor.text(_MAX_NAME)
        num_dims = int(cursor.number("I"))
        if not 1 <= num_dims <= 4:
            raise cursor.damaged(f"the tensor {name!r} has {num_dims} dimensions")
        dims = [int(cursor.number("Q")) for _ in range(num_dims)]
        found.append((name, tuple(reversed(dims)), kind_of(int(cursor.number("I"))), int(cursor.number("Q"))))
    first = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in found:
        if name in tensors:
            raise cursor.damaged(f"it has the tensor {name!r} twice")
        if min(shape) < 1 or shape[-1] % kind.values or offset % alignment:
            raise cursor.damaged(
                f"the tensor {name!r} has the shape {list(shape)} or an offset that cannot be"
            )
        nbytes = math.prod(shape) // kind.values * kind.nbytes
        if first + offset + nbytes > len(cursor.data):
            raise cursor.damaged(f"it ends before its tensor {name!r} does")
        tensors[name] = GgufTensor(name, shape, kind, first + offset, nbytes, cursor.path)
    for one, other in pairwise(sorted(tensors.values(), key=lambda tensor: tensor.start)):
        if other.start < one.start + one.nbytes:
            raise cursor.damaged(f"its tensors {one.name!r} and {other.name!r} overlap")
    return tensors
