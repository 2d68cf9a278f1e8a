"""Which tokens of a vocabulary are alike where a document is to be completed soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Kinds", "TokenKinds", "Where", "is_within_character"]

Where = Literal["structure", "string", "pattern", "text"]
_STRUCTURE = b'"\\{}[],:'  # of JSON
_IN_STRINGS = b'"\\'  # what of it is more than text inside a string
# A lead byte of n bytes of UTF-8, so far from the end that the character is not complete.
_LEADS = tuple((n, back) for n in (2, 3, 4) for back in range(1, n))


@dataclass(frozen=True, slots=True)
class Kinds:
    """Tokens that are taken to be alike: `of` [V] says of which kind each is."""

    of: Tensor
    count: int


class TokenKinds:
    """The kinds of the tokens at each sort of place; a kind is found when it is first asked for.

    structure: between the parts of JSON, those with the same text from the first sign of structure on.
    string: in a string that may hold anything, those with the same text from the first quote or backslash.
    pattern: in a string with a pattern, those with the same sequence of sorts of characters as well.
    text: outside JSON, those with the same first byte.
    All of a kind begin and end at the same place of a character.
    """

    def __init__(self, token_bytes: Sequence[bytes], width: int) -> None:
        missing = [b""] * (width - len(token_bytes))
        self._token_bytes = [*token_bytes[:width], *missing]
        self._known: dict[Where, Kinds] = {}

    def at(self, where: Where) -> Kinds:
        """The kinds at this sort of place."""
        if where not in self._known:
            name, numbers = _NAMES[where], dict[tuple[bytes, int, int], int]()
            of = [numbers.setdefault(_kind(data, name), len(numbers)) for data in self._token_bytes]
            self._known[where] = Kinds(torch.tensor(of), len(numbers))
        return self._known[where]


def _kind(data: bytes, name: Callable[[bytes], bytes]) -> tuple[bytes, int, int]:
    """What tokens have in common: a name, and how much of a character they begin and end with."""
    if not data:
        return b"", -1, 0  # no text
    ends = next((place for place, byte in enumerate(data) if byte >> 6 != 2), len(data))
    return name(data), ends, _missing(data)


def is_within_character(text: bytes) -> bool:
    """Whether the text ends before its last character is complete."""
    return text[-1:] >= b"\x80" and _missing(text) > 0


def _missing(data: bytes) -> int:
    """Bytes that the last character lacks."""
    reach = ((n, back) for n, back in _LEADS if back <= len(data))
    lacks = (n - back for n, back in reach if data[-back] >> (7 - n) == 2 ** (n + 1) - 2)
    return next(lacks, 0)


def _in_structure(data: bytes) -> bytes:
    """From the first sign of structure on; without one, what a value begins or goes on with."""
    if rest := _from_sign(data, _STRUCTURE):
        return rest
    first = data[:1]
    if first.isdigit() or first.isspace():
        return b"0" if first.isdigit() else b" "
    return first if first in b"tfn-+.eE" else b""


def _in_pattern(data: bytes) -> bytes:
    """The sorts of the characters up to the first quote or backslash, and the rest as it is."""
    rest = _from_sign(data, _IN_STRINGS)
    text = data[: len(data) - len(rest)]
    sorts = bytes(sort for sort, _ in groupby(map(_sort, text)))
    return data + b"\0" if len(data) == 1 else sorts + rest  # a single byte stands for itself


def _sort(byte: int) -> int:
    sign = chr(byte)
    if byte > 127:
        return 128
    return ord("0" if sign.isdigit() else "A" if sign.isupper() else "a" if sign.isalpha() else sign)


def _from_sign(data: bytes, signs: bytes) -> bytes:
    return next((data[place:] for place, byte in enumerate(data) if byte in signs), b"")


_NAMES: dict[Where, Callable[[bytes], bytes]] = {
    "structure": _in_structure,
    "string": lambda data: _from_sign(data, _IN_STRINGS),
    "pattern": _in_pattern,
    "text": lambda data: data[:1],
}
