"""`Readable`: keeps JSON documents within the limits of readers, which their grammars do not know.

A grammar of JSON allows numbers of any length and exponent, any depth, and half a surrogate pair as an
escape. Readers refuse them: 72E8214 has thousands of digits when it is written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from processors.constraint import MAX_DEPTH, MAX_EXPONENT, MAX_NUMBER
from processors.grammar.backends.bits import allows, pack
from processors.grammar.state.spot import Spot

__all__ = ["Document", "Readable"]

Document = Literal["", "json", "parts"]  # no JSON, a JSON document, or text with JSON in some parts

_NEAR = 32  # characters before MAX_NUMBER from which numbers are watched; more than a token has digits
# A number that may go on, at the end of a text, behind what may stand before a value.
_NUMBER = re.compile(rb"(?:^|[\s:,\[])(-?[0-9]+(?:\.[0-9]*)?(?:[eE](?P<sign>[+-]?)(?P<exponent>[0-9]*))?)\Z")
_LONG = rb"[eE][+-]?[0-9]{%d}" % (MAX_EXPONENT + 1)
_HALVES = {b"ud": rb"[89a-fA-F]", b"uD": rb"[89a-fA-F]", b"u": rb"[dD][89a-fA-F]", b"": rb"u[dD][89a-fA-F]"}
_HALF = rb"[^\\]*(?:\\\\)*\\u[dD][89a-fA-F]"


class Readable:
    """Forbids tokens in masks, but never all: a value that the grammar demands stays possible."""

    def __init__(self, token_bytes: Sequence[bytes], width: int) -> None:
        self._token_bytes = list(enumerate(token_bytes[:width]))
        # This letter is allowed in free text and in most strings, but in no number and no escape.
        self._letter = next((token for token, data in self._token_bytes if data == b"Z"), None)
        self._starting = lru_cache(maxsize=256)(self._mask_of_starting)

    def restrict(self, mask: Tensor, spot: Spot, document: Document) -> None:
        """Forbid in mask [W], in place, the tokens that make the document around `spot` unreadable."""
        for pattern in self._patterns(mask, spot, document):
            gone = self._starting(pattern, len(mask))
            if gone is not None and (kept := mask & ~gone).any():
                mask.copy_(kept)

    def _patterns(self, mask: Tensor, spot: Spot, document: Document) -> Iterator[bytes]:
        """Yield patterns of the beginnings of the tokens to forbid."""
        if document == "parts":
            if self._letter is None or allows(mask, self._letter):
                return
            yield from _of_escapes(spot.text)
            yield from _of_numbers(spot.text)
        elif document == "json" and spot.signs is not None:
            if (left := MAX_DEPTH - spot.signs.depth) < _NEAR:
                yield rb"(?:[^\[{]*[\[{]){%d}" % (max(0, left) + 1)
            if spot.signs.in_string:
                yield _HALF
                yield from _of_escapes(spot.text)
            else:
                yield rb'[^"]*[0-9]' + _LONG
                yield from _of_numbers(spot.text)

    def _mask_of_starting(self, pattern: bytes, size: int) -> Tensor | None:
        """Return the mask [size] of the tokens that begin with a match; None if there are none."""
        begins = re.compile(pattern).match
        ids = [token for token, data in self._token_bytes if begins(data)]
        return pack(torch.tensor(ids), size) if ids else None


def _of_escapes(text: bytes) -> Iterator[bytes]:
    """Yield what must not go on an escape that has begun at the end of the text."""
    begun = next(one for one in _HALVES if text.endswith(one))
    before = text[: len(text) - len(begun)]
    if (len(before) - len(before.rstrip(b"\\"))) % 2:
        yield _HALVES[begun]


def _of_numbers(text: bytes) -> Iterator[bytes]:
    number = _NUMBER.search(text[-MAX_NUMBER - 1 :])  # the rest would be read again for each token
    if number is None:
        return
    digits = number["exponent"]
    if digits is not None:
        yield rb"[0-9]{%d}" % (max(0, MAX_EXPONENT - len(digits)) + 1)
        if not digits and not number["sign"]:
            yield rb"[+-][0-9]{%d}" % (MAX_EXPONENT + 1)
        return
    yield rb"[0-9.]*" + _LONG
    if (left := MAX_NUMBER - len(number[1])) < _NEAR:
        yield rb"[0-9]{%d}" % (max(0, left) + 1)
