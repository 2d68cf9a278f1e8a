"""Classes of tokens that are equivalent, or nearly so, for completing a document within few tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Kinds", "TokenKinds", "Where", "is_within_character"]

Where = Literal["structure", "string", "pattern", "text"]
_STRUCTURE = b'"\\{}[],:'  # structural characters of JSON
_IN_STRINGS = b'"\\'  # characters with a meaning inside a string
# (n, back): the lead byte of an n-byte UTF-8 character `back` bytes before the end, so that bytes are
# missing.
_LEADS = tuple((n, back) for n in (2, 3, 4) for back in range(1, n))


@dataclass(frozen=True, slots=True)
class Kinds:
    """A partition of the vocabulary: `of` [V] is the kind of each token, `count` the number of kinds."""

    of: Tensor
    count: int


class TokenKinds:
    """The kinds of tokens in each context, computed on first use. Tokens of a kind agree in:

    structure (JSON outside strings): the text from the first structural character on. string (a JSON string
    without a pattern): the text from the first quote or backslash on. pattern (a JSON string with a pattern):
    the same text, and the sequence of character classes before it. text (not JSON): the first byte. In all
    contexts: the number of bytes of a partial UTF-8 character at both ends.
    """

    def __init__(self, token_bytes: Sequence[bytes], width: int) -> None:
        missing = [b""] * (width - len(token_bytes))
        self._token_bytes = [*token_bytes[:width], *missing]
        self._known: dict[Where, Kinds] = {}

    def at(self, where: Where) -> Kinds:
        """Return the kinds in this context."""
        if where not in self._known:
            name, numbers = _NAMES[where], dict[tuple[bytes, int, int], int]()
            of = [numbers.setdefault(_kind(data, name), len(numbers)) for data in self._token_bytes]
            self._known[where] = Kinds(torch.tensor(of), len(numbers))
        return self._known[where]


def _kind(data: bytes, name: Callable[[bytes], bytes]) -> tuple[bytes, int, int]:
    """Return the key of a kind: a name, and the partial UTF-8 characters at both ends."""
    if not data:
        return b"", -1, 0  # no text
    ends = next((index for index, byte in enumerate(data) if byte >> 6 != 2), len(data))
    return name(data), ends, _missing(data)


def is_within_character(text: bytes) -> bool:
    """Whether the text ends inside a UTF-8 character."""
    return text[-1:] >= b"\x80" and _missing(text) > 0


def _missing(data: bytes) -> int:
    """Return the number of bytes missing from the last UTF-8 character of `data`."""
    reach = ((n, back) for n, back in _LEADS if back <= len(data))
    lacks = (n - back for n, back in reach if data[-back] >> (7 - n) == 2 ** (n + 1) - 2)
    return next(lacks, 0)


def _in_structure(data: bytes) -> bytes:
    """Return the text from the first structural character on; without one, the class of the first byte."""
    if rest := _from_sign(data, _STRUCTURE):
        return rest
    first = data[:1]
    if first.isdigit() or first.isspace():
        return b"0" if first.isdigit() else b" "
    return first if first in b"tfn-+.eE" else b""


def _in_pattern(data: bytes) -> bytes:
    """Return the character classes up to the first quote or backslash, then the rest unchanged."""
    rest = _from_sign(data, _IN_STRINGS)
    text = data[: len(data) - len(rest)]
    sorts = bytes(sort for sort, _ in groupby(map(_sort, text)))
    return data + b"\0" if len(data) == 1 else sorts + rest  # a single byte is a kind of its own


def _sort(byte: int) -> int:
    sign = chr(byte)
    if byte > 127:
        return 128
    return ord("0" if sign.isdigit() else "A" if sign.isupper() else "a" if sign.isalpha() else sign)


def _from_sign(data: bytes, signs: bytes) -> bytes:
    return next((data[index:] for index, byte in enumerate(data) if byte in signs), b"")


_NAMES: dict[Where, Callable[[bytes], bytes]] = {
    "structure": _in_structure,
    "string": lambda data: _from_sign(data, _IN_STRINGS),
    "pattern": _in_pattern,
    "text": lambda data: data[:1],
}
