"""Token ids to text, one token at a time, and the bytes that each token of a vocabulary adds to it.

The texts of all tokens, joined, are the text of the whole sequence: a character whose bytes are incomplete
is held back, and becomes U+FFFD only when it can no longer complete. DecodeStream of the `tokenizers`
library is not used: it raises where a broken run of `<0xNN>` tokens rewrites released text.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from encodings import utf_8
from typing import Any, Protocol


class TokenDecoder(Protocol):
    """Interface of a decoder of one growing token sequence."""

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain, "" for a hidden special token."""

    def hidden(self, token_id: int) -> str:
        """Return the name of a special token that `push` hides; "" for every other token."""

    def flush(self) -> str:
        """End the text; incomplete bytes become U+FFFD."""

    def fork(self) -> TokenDecoder:
        """Return an independent copy."""


class ByteDecoder(TokenDecoder):
    """For vocabularies whose tokens are bytes independently of their neighbours: exact, in constant time."""

    def __init__(self, pieces: Pieces, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> None:
        self._pieces = pieces
        self._hidden = pieces.special_ids if skip_special else frozenset[int]()
        self._utf8 = utf_8.IncrementalDecoder("replace")
        self._is_first = True
        self._strip_char, self._strip_left = pieces.rules.strip
        for token_id in prompt_ids:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        is_alone = not (self._utf8.buffer or self._is_first or self._strip_left)
        if is_alone and (text := self._pieces.text(token_id)) is not None:
            return text
        piece = self._pieces[token_id]
        if piece and (self._is_first or self._strip_left):
            piece = self._open(token_id, piece)
        return self._utf8.decode(piece)

    def hidden(self, token_id: int) -> str:
        return self._pieces[token_id].decode("utf-8", "replace") if token_id in self._hidden else ""

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)

    def fork(self) -> ByteDecoder:
        other = copy.copy(self)
        other._utf8 = copy.copy(self._utf8)
        return other

    def _open(self, token_id: int, piece: bytes) -> bytes:
        """Return the bytes of a token at the beginning of the text, where some vocabularies trim a space."""
        if self._is_first:
            piece = self._pieces.first(token_id)
            self._is_first = False
        lead = self._strip_char.encode()
        while self._strip_left and piece.startswith(lead):
            piece = piece[len(lead) :]
            self._strip_left -= 1
        if piece:
            self._strip_left = 0
        return piece


class WindowDecoder(TokenDecoder):
    """For all other tokenizers: decodes the last few tokens again with each new token.

    Exact if the text of a token depends on its near neighbours only. `decode` turns ids into text.
    """

    NUM_CONTEXT = 6  # tokens already released that are decoded again with each new token
    MAX_HELD = 4  # tokens; a character has at most 4 bytes, so an older U+FFFD is part of the text

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        name_of: Callable[[int], str],
        hidden_ids: frozenset[int],
        prompt_ids: Sequence[int] = (),
    ) -> None:
        self._decode = decode
        self._name_of = name_of
        self._hidden = hidden_ids
        visible = [token_id for token_id in prompt_ids if token_id not in hidden_ids]
        self._context = visible[-self.NUM_CONTEXT :]
        self._held: list[int] = []  # tokens whose joined text ends in U+FFFD so far
        self._num_released = 0  # characters of the held tokens that are already released

    def push(self, token_id: int) -> str:
        if token_id in self._hidden:
            return ""
        self._held.append(token_id)
        text = self._held_text()
        certain = text
        if text.endswith("\ufffd") and len(self._held) < 2 * self.MAX_HELD:
            certain = text[:-1] if len(self._held) >= self.MAX_HELD else text.rstrip("\ufffd")
        released = certain[self._num_released :]
        if certain == text:
            self._settle()
        else:
            self._num_released = max(self._num_released, len(certain))
        return released

    def hidden(self, token_id: int) -> str:
        return self._name_of(token_id) if token_id in self._hidden else ""

    def flush(self) -> str:
        text = self._held_text()[self._num_released :] if self._held else ""
        self._settle()
        return text

    def fork(self) -> WindowDecoder:
        other = copy.copy(self)
        other._held = self._held.copy()
        return other

    def _settle(self) -> None:
        self._context = [*self._context, *self._held][-self.NUM_CONTEXT :]
        self._held, self._num_released = [], 0

    def _held_text(self) -> str:
        released = self._decode(self._context) if self._context else ""
        text = self._decode([*self._context, *self._held])
        while not text.startswith(released):
            released = released[:-1]  # the new tokens would change text that is already released
        return text[len(released) :]


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
            try:
                return bytes(map(_BYTE_OF.__getitem__, token))
            except KeyError:  # another character, as in an added token with a space: the token is plain text
                return token.encode()
        for old, new in self.replaced:
            token = token.replace(old, new)
        if self.byte_fallback and (hex_token := _HEX_TOKEN.fullmatch(token)):
            return bytes.fromhex(hex_token[1])
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


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The bytes of each id of a vocabulary, computed on first use.

    `token_of` returns the token string of an id, None for an id without a token.
    """

    rules: PieceRules
    token_of: Callable[[int], str | None]
    special_ids: frozenset[int]
    _known: dict[int, bytes] = field(default_factory=dict)
    _texts: dict[int, str | None] = field(default_factory=dict)

    def __getitem__(self, token_id: int) -> bytes:
        """Return the bytes of an id inside a text; for a special token those of its name."""
        piece = self._known.get(token_id)
        if piece is None:
            piece = self.rules.to_bytes(self.token_of(token_id) or "")
            self._known[token_id] = piece
        return piece

    def text(self, token_id: int) -> str | None:
        """Return the text of an id inside a text; None if its bytes are not whole characters."""
        if token_id not in self._texts:
            try:
                self._texts[token_id] = self[token_id].decode()
            except UnicodeDecodeError:
                self._texts[token_id] = None
        return self._texts[token_id]

    def first(self, token_id: int) -> bytes:
        """Return the bytes of an id at the beginning of a text."""
        token = self.token_of(token_id) or ""
        return self.rules.to_bytes(token.replace(self.rules.bare, "") if self.rules.bare else token)
