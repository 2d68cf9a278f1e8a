"""The bytes that each token of a vocabulary adds to the text.

Token strings are encoded: byte-level vocabularies write bytes as printable characters, sentencepiece-like
ones write a space as a meta character and rare bytes as `<0xNN>`. The `tokenizers` library decodes them with
a chain of decoders over the whole text. This module applies the same chain to each token, which makes
streaming exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["PieceRules", "Pieces", "byte_alphabet", "read_rules"]

_HEX_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[int, str]:
    """Return the 256 characters with which byte-level vocabularies write bytes (GPT-2's choice), by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = {byte: chr(byte) for byte in printable}
    return spelled | {byte: chr(256 + i) for i, byte in enumerate(others)}


_BYTE_OF = {char: byte for byte, char in byte_alphabet().items()}


@dataclass(frozen=True, slots=True)
class PieceRules:
    """Rules that turn a token string into bytes.

    `byte_level`: each character stands for a byte. `replaced`: pairs of a substring and its replacement.
    `byte_fallback`: `<0xNN>` is that byte. `strip`: a character, and how many of it are removed from the
    front of the text. `bare`: a character that is removed from the first token.
    """

    byte_level: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip: tuple[str, int] = ("", 0)
    bare: str = ""

    def to_bytes(self, token: str) -> bytes:
        """Return the bytes of a token inside a text."""
        if self.byte_level:
            # A token with any other character, such as an added token with a space, is plain text.
            if all(char in _BYTE_OF for char in token):
                return bytes(_BYTE_OF[char] for char in token)
            return token.encode()
        for old, new in self.replaced:
            token = token.replace(old, new)
        if self.byte_fallback and (found := _HEX_TOKEN.fullmatch(token)):
            return bytes.fromhex(found[1])
        return token.encode()


def read_rules(spec: Mapping[str, Any]) -> PieceRules | None:
    """Return the rules of a `tokenizers` decoder, given as JSON; None if it cannot work per token."""
    rules, fused = PieceRules(), False
    for step in _steps(spec):
        match step:
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": str(char), "start": int(start), "stop": 0} if fused:
                rules = replace(rules, strip=(char, start))
            case _ if fused:
                return None
            case {"type": "ByteLevel"}:
                rules = replace(rules, byte_level=True)
            case {"type": "ByteFallback"}:
                rules = replace(rules, byte_fallback=True)
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                rules = replace(rules, replaced=(*rules.replaced, (old, new)))
            case {"type": "Metaspace", "replacement": str(char)}:
                bare = "" if step.get("prepend_scheme") == "never" else char
                rules = replace(rules, replaced=(*rules.replaced, (char, " ")), bare=bare)
            case _:
                return None
    # With other steps the order would matter; all byte-level vocabularies have this step alone.
    is_unsupported = rules == PieceRules() or (rules.byte_level and rules != PieceRules(byte_level=True))
    return None if is_unsupported else rules


def _steps(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if spec["type"] != "Sequence":
        yield spec
        return
    for step in spec["decoders"]:
        yield from _steps(step)


class Pieces:
    """The bytes of each id of a vocabulary, computed on first use.

    `token_of` returns the token string of an id, None for an id without a token.
    """

    def __init__(
        self, rules: PieceRules, token_of: Callable[[int], str | None], special_ids: frozenset[int]
    ) -> None:
        self.rules = rules
        self.special_ids = special_ids
        self._token_of = token_of
        self._known: dict[int, bytes] = {}
        self._texts: dict[int, str | None] = {}

    def __getitem__(self, token_id: int) -> bytes:
        """Return the bytes of an id inside a text; for a special token those of its name."""
        piece = self._known.get(token_id)
        if piece is None:
            piece = self.rules.to_bytes(self._token_of(token_id) or "")
            self._known[token_id] = piece
        return piece

    def text(self, token_id: int) -> str | None:
        """Return the text of an id inside a text; None if its bytes are not whole characters."""
        if token_id not in self._texts:
            self._texts[token_id] = _text(self[token_id])
        return self._texts[token_id]

    def first(self, token_id: int) -> bytes:
        """Return the bytes of an id at the beginning of a text."""
        token = self._token_of(token_id) or ""
        return self.rules.to_bytes(token.replace(self.rules.bare, "") if self.rules.bare else token)


def _text(piece: bytes) -> str | None:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return None
