"""Read the header of a GGUF file, the format of llama.cpp: metadata by key, where each tensor lies, and
which weights keep their bits in memory. The layout (versions 2 and 3, little-endian) is GGUF, version,
number of tensors, number of metadata values, the values, the tensors' names, shapes, formats and
offsets, then the data; arrays stay in the file until they are asked for. Every length is checked
against the file before anything is read by it.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from gencli.errors import ModelError
from gencli.files import open_regular
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.files.model_files import Format, Quantize

HINT = "Download it again."
_MAX_HEADER = 128 << 20  # bytes; the largest vocabularies take about 20 MB
_MAX_TEXT = 16 << 20  # bytes of one text, such as a chat template
_MAX_ARRAY = 2**22
# Metadata types: the codes of struct for numbers, texts and arrays.
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufArray:
    """An array of `count` values from the byte `start` on; `code` is that of struct, "" for texts."""

    code: str
    count: int
    start: int


def mapped(path: Path) -> mmap.mmap:
    """Map a file into memory, which reads only the pages that are looked at. Raises ModelError."""
    try:
        with open_regular(path) as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ModelError(f"{path} is damaged: it is empty.", hint=HINT) from None


class Cursor:
    """Reads values one after the other, none beyond the end of the header."""

    def __init__(self, path: Path, data: mmap.mmap, at: int) -> None:
        self.path, self.data, self.at = path, data, at
        self._end = min(len(data), _MAX_HEADER)

    def damaged(self, problem: str) -> ModelError:
        return ModelError(f"{self.path} is damaged: {problem}.", hint=HINT)

    def number(self, code: str) -> int | float | bool:
        """Return a number by its struct code."""
        size = struct.calcsize(code)
        if self.at + size > self._end:
            raise self._too_short()
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += size
        return shortest(value) if code == "f" else value

    def size(self, limit: int) -> int:
        """Return a number of things, at most `limit`."""
        count = int(self.number("Q"))
        if count > limit:
            raise self.damaged(f"its header promises {count} of what are at most {limit}")
        return count

    def text(self, limit: int = _MAX_TEXT) -> str:
        """Return a text of at most `limit` bytes."""
        length = self.size(limit)
        start, self.at = self.at, self.at + length
        if self.at > self._end:
            raise self._too_short()
        return self._decoded(start, self.at)

    def texts(self, count: int) -> Iterator[str]:
        for start, end in self._spans(count):
            yield self._decoded(start, end)

    def value(self) -> str | bool | int | float | GgufArray:
        """Return a metadata value; the elements of an array are skipped."""
        kind = int(self.number("I"))
        if kind == _TEXT:
            return self.text()
        if kind in _CODES:
            return self.number(_CODES[kind])
        if kind != _ARRAY:
            raise self.damaged(f"it has a value of the type {kind}, which is unknown")
        kind, count = int(self.number("I")), self.size(_MAX_ARRAY)
        if kind != _TEXT and kind not in _CODES:
            raise self.damaged(f"it has an array of the type {kind}")
        values = GgufArray(_CODES.get(kind, ""), count, self.at)
        if values.code:
            self.at += count * struct.calcsize(values.code)
        else:
            for _, end in self._spans(count):
                self.at = end
        if self.at > self._end:
            raise self._too_short()
        return values

    def _spans(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the first byte and the end of `count` texts. A loop of its own: there may be 500,000."""
        length_at, data, at, last = struct.Struct("<Q").unpack_from, self.data, self.at, self._end - 8
        for _ in range(count):
            if at > last:
                raise self._too_short()
            start = at + 8
            at = start + length_at(data, at)[0]
            yield start, at

    def _decoded(self, start: int, end: int) -> str:
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise self.damaged("it has a text that is not UTF-8") from None

    def _too_short(self) -> ModelError:
        return self.damaged("its header is incomplete or too long")


def shortest(value: float) -> float:
    """Return the shortest decimal number that is `value` in float32, as 1e-05 for 9.999999747378752e-06."""
    if not math.isfinite(value):
        return value
    rounded = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((short for short in rounded if struct.pack("f", short) == struct.pack("f", value)), value)


CHAT_TEMPLATE = "tokenizer.chat_template"  # the key of the chat template
PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)  # a file's name
_MAX_VALUES, _MAX_TENSORS, _MAX_NAME = 2**16, 2**17, 2**10
_MAX_COUNT = 2**31 - 1
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
        return self._value(key, str, "a text")

    def flag(self, key: str) -> bool | None:
        return self._value(key, bool, "true or false")

    def count(self, key: str) -> int | None:
        """Return a whole number from 0 to 2^31 - 1."""
        value = self._value(key, int, "a whole number")
        if value is not None and not 0 <= value <= _MAX_COUNT:
            raise self.wrong(key, f"is {value}, but has to be from 0 to {_MAX_COUNT}")
        return value

    def number(self, key: str) -> float | None:
        """Return a finite number: of a float32 the shortest decimal number that rounds to it."""
        value = self.values.get(key)
        if type(value) is int:
            return float(value)
        value = self._value(key, float, "a number")
        if value is not None and not math.isfinite(value):
            raise self.wrong(key, f"is {value}, but has to be a finite number")
        return value

    def texts(self, key: str) -> list[str] | None:
        entry = self._array(key, "texts", "numbers")
        if entry is None:
            return None
        with mapped(self.path) as data:
            return list(Cursor(self.path, data, entry.start).texts(entry.count))

    def numbers(self, key: str) -> array[int] | array[float] | None:
        entry = self._array(key, "numbers", "texts")
        if entry is None:
            return None
        values: array[int] | array[float] = array("B" if entry.code == "?" else entry.code)
        with mapped(self.path) as data:
            values.frombytes(data[entry.start : entry.start + entry.count * struct.calcsize(entry.code)])
        return values

    def vector(self, name: str) -> list[float] | None:
        """Return a small float32 tensor of one dimension; None without one. Raises ModelError for another."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if len(tensor.shape) != 1 or tensor.kind.name != "F32" or tensor.shape[0] > 2**16:
            raise ModelError(f"{self.path}: the tensor {name} is not a short vector in F32.", hint=HINT)
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
        return ModelError(f"{self.path}: {key} {problem}.", hint=hint)

    def _value(self, key: str, kind: type[_T], name: str) -> _T | None:
        value = self.values.get(key)
        if value is not None and type(value) is not kind:
            shown = "an array" if isinstance(value, GgufArray) else repr(value)[:60]
            raise self.wrong(key, f"is {shown}, but has to be {name}")
        return value

    def _array(self, key: str, wanted: str, other: str) -> GgufArray | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, GgufArray):
            raise self.wrong(key, f"is {repr(value)[:60]}, but has to be an array of {wanted}")
        if value is not None and (value.code == "") != (wanted == "texts"):
            raise self.wrong(key, f"holds {other}, but has to hold {wanted}")
        return value


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
        numbering = tuple(part.count(f"split.{key}") for key in ("no", "count", "tensors.count"))
        if numbering != (number, count, total) or tensors.keys() & part.tensors.keys():
            raise ModelError(f"{file} is not part {number + 1} of {count} of the model in {files[0]}.")
        tensors |= part.tensors
    if len(tensors) != total:
        raise ModelError(
            f"{files[0]} and its parts have {len(tensors)} tensors in place of {total}.", hint=HINT
        )
    return GgufHead(files[0], first.values, tensors, files)


def _read_file(path: Path) -> GgufHead:
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
            fault = f"has version {version} of the format" if version % 2**16 else "is big-endian"
            raise ModelError(f"{path} {fault}; gencli reads little-endian files of the versions 2 and 3.")
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
    entries: list[tuple[str, tuple[int, ...], Kind, int]] = []
    for _ in range(count):
        name = cursor.text(_MAX_NAME)
        num_dims = int(cursor.number("I"))
        if not 1 <= num_dims <= 4:
            raise cursor.damaged(f"the tensor {name!r} has {num_dims} dimensions")
        dims = [int(cursor.number("Q")) for _ in range(num_dims)]
        entries.append(
            (name, tuple(reversed(dims)), kind_of(int(cursor.number("I"))), int(cursor.number("Q")))
        )
    first = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, kind, offset in entries:
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
    for before, after in pairwise(sorted(tensors.values(), key=lambda tensor: tensor.start)):
        if after.start < before.start + before.nbytes:
            raise cursor.damaged(f"its tensors {before.name!r} and {after.name!r} overlap")
    return tensors


@dataclass(frozen=True, slots=True)
class Kind:
    """A number format: blocks of `values` numbers take `nbytes` bytes.

    `nbytes` is 0 for a format that is known by name only and cannot be read.
    """

    name: str
    values: int = 1
    nbytes: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether several numbers share a scale."""
        return self.values > 1


KINDS: Mapping[int, Kind] = {
    0: Kind("F32", 1, 4),
    1: Kind("F16", 1, 2),
    2: Kind("Q4_0", 32, 18),
    3: Kind("Q4_1", 32, 20),
    6: Kind("Q5_0", 32, 22),
    7: Kind("Q5_1", 32, 24),
    8: Kind("Q8_0", 32, 34),
    10: Kind("Q2_K", 256, 84),
    11: Kind("Q3_K", 256, 110),
    12: Kind("Q4_K", 256, 144),
    13: Kind("Q5_K", 256, 176),
    14: Kind("Q6_K", 256, 210),
    27: Kind("I64", 1, 8),  # of token ids
    30: Kind("BF16", 1, 2),
}
# Formats that are known by name only.
_NAMES = dict(
    zip(
        (9, *range(15, 30), 34, 35, 39, 40),
        """
        Q8_1 Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M
        TQ1_0 TQ2_0 MXFP4 NVFP4
        """.split(),
        strict=True,
    )
)


def kind_of(number: int) -> Kind:
    """Return the format with this number; one without a size if it cannot be read."""
    return KINDS.get(number) or Kind(_NAMES.get(number, f"number {number}"))


# Four bits in groups of 32, with a scale and a zero or minimum: what every kernel for four bits computes.
_FOUR_BITS = dict.fromkeys(("Q4_0", "Q4_1", "Q4_K"), 5.0)
# What compiled kernels compute; two levels of scales are multiplied to float32.
_COMPILED = {"Q4_0": 4.5, "Q4_1": 5, "Q4_K": 6, "Q5_0": 5.5, "Q5_1": 6, "Q5_K": 7, "Q6_K": 8, "Q8_0": 8.5}
_EMBEDDINGS, _HEAD = "token_embd.weight", "output.weight"


def kept_bits(device: str) -> Mapping[str, float]:
    """Return the number formats whose bits a device keeps, with the bits of a weight and its scales."""
    return _COMPILED if device == "cpu" and missing() is None else _FOUR_BITS


def weight_format(model: Path, quantize: Quantize, *, dtype: str, device: str) -> Format:
    """Return how a model's weights are held: as `quantize` says, or `kept`, with the bits of a GGUF file.

    They are kept on a CPU and on CUDA (`device`) with the dtype `auto`; another dtype widens them.
    """
    can_keep = quantize == "none" and dtype == "auto" and device in ("cpu", "cuda")
    return "kept" if can_keep and kept_kinds(model, device) else quantize


def kept_kinds(model: Path, device: str) -> tuple[str, ...]:
    """Return the number formats of a GGUF file's matrices whose bits a device keeps; () for another model."""
    if not is_gguf(model):
        return ()
    held = held_tensors(read_gguf_head(model))
    return tuple(
        sorted({tensor.kind.name for tensor in held if len(tensor.shape) > 1} & kept_bits(device).keys())
    )


def held_tensors(head: GgufHead) -> Iterator[GgufTensor]:
    """Yield the tensors that are held in memory: all but embeddings with a projection of their own."""
    for tensor in head.tensors.values():
        if tensor.name != _EMBEDDINGS or _HEAD not in head.tensors:
            yield tensor


def kept_bytes(model: Path, other_bytes: int, device: str, head: int = 4) -> int:
    """Return the bytes of all weights but embeddings if bits are kept and others have `other_bytes` each.

    A vocabulary projection that is not kept has `head`. Vectors and matrices in F32 have four.
    """
    bits, total = kept_bits(device), 0
    keeps_head = bits is _COMPILED
    for tensor in held_tensors(read_gguf_head(model)):
        count, is_head = math.prod(tensor.shape), tensor.name in (_EMBEDDINGS, _HEAD)
        if len(tensor.shape) > 1 and tensor.kind.name in bits and (keeps_head or not is_head):
            total += int(count * bits[tensor.kind.name] / 8)
        elif is_head:
            total += head * count
        elif len(tensor.shape) == 1 or tensor.kind.name == "F32":
            total += 4 * count
        else:
            total += count * other_bytes
    return total


def widening(model: Path, to: str, number_bytes: int, kept: Iterable[str]) -> tuple[str, ...]:
    """Return the notice that quantized weights in formats that are not `kept` are widened to `to`."""
    quantized = [tensor for tensor in held_tensors(read_gguf_head(model)) if tensor.kind.is_quantized]
    wide = [tensor for tensor in quantized if tensor.kind.name not in kept]
    if not wide:
        return ()
    kinds = sorted({tensor.kind.name for tensor in wide})
    size = sum(math.prod(tensor.shape) for tensor in wide) * number_bytes / 2**30
    return (f"{' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} widened to {to}: {size:.1f} GiB",)
