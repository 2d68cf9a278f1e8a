"""Read numbers, texts and arrays from the header of a GGUF file, none beyond its end."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gencli.errors import ModelError
from gencli.files import open_regular

__all__ = ["HINT", "Cursor", "GgufArray", "mapped", "shortest"]

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
        """Return the error for the file."""
        return ModelError(f"{self.path} is damaged: {problem}.", hint=HINT)

    def number(self, code: str) -> int | float | bool:
        """Return a number by its struct code."""
        size = struct.calcsize(code)
        if self.at + size > self._end:
            raise self._too_short()
        (found,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += size
        return shortest(found) if code == "f" else found

    def size(self, most: int) -> int:
        """Return a number of things, at most `most`."""
        found = int(self.number("Q"))
        if found > most:
            raise self.damaged(f"its header promises {found} of what are at most {most}")
        return found

    def text(self, most: int = _MAX_TEXT) -> str:
        """Return a text of at most `most` bytes."""
        length = self.size(most)
        start, self.at = self.at, self.at + length
        if self.at > self._end:
            raise self._too_short()
        return self._decoded(start, self.at)

    def texts(self, count: int) -> Iterator[str]:
        """Yield `count` texts."""
        for start, end in self._spans(count):
            yield self._decoded(start, end)

    def value(self) -> str | bool | int | float | GgufArray:
        """Return a metadata value; the elements of an array are skipped."""
        kind = int(self.number("I"))
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _CODES:
            raise self.damaged(f"it has a value of the type {kind}, which is unknown")
        return self.number(_CODES[kind])

    def _array(self) -> GgufArray:
        kind, count = int(self.number("I")), self.size(_MAX_ARRAY)
        if kind != _TEXT and kind not in _CODES:
            raise self.damaged(f"it has an array of the type {kind}")
        found = GgufArray(_CODES.get(kind, ""), count, self.at)
        if found.code:
            self.at += count * struct.calcsize(found.code)
        else:
            for _, end in self._spans(count):
                self.at = end
        if self.at > self._end:
            raise self._too_short()
        return found

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
