"""Token ids to text, one token at a time.

The texts of all tokens, joined, are the text of the whole sequence. A character whose bytes are incomplete is
held back, and becomes U+FFFD only when it can no longer complete. A decoder initialised with the prompt keeps
the space between prompt and output.

DecodeStream of the `tokenizers` library is not used: it raises "invalid prefix" where a broken run of
`<0xNN>` tokens rewrites released text, and its cost per token grows with a sequence that never completes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from encodings import utf_8
from typing import Protocol

from gencli.text.pieces import Pieces

__all__ = ["ByteDecoder", "TokenDecoder", "WindowDecoder"]


class TokenDecoder(Protocol):
    """Interface of a decoder of one growing token sequence."""

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain, "" for a hidden special token."""
        ...

    def hidden(self, token_id: int) -> str:
        """Return the name of a special token that `push` hides; "" for every other token."""
        ...

    def flush(self) -> str:
        """End the text; incomplete bytes become U+FFFD."""
        ...

    def fork(self) -> TokenDecoder:
        """Return an independent copy."""
        ...


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
        certain = self._certain(text)
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

    def _certain(self, text: str) -> str:
        if not text.endswith("\ufffd") or len(self._held) >= 2 * self.MAX_HELD:
            return text
        return text[:-1] if len(self._held) >= self.MAX_HELD else text.rstrip("\ufffd")

    def _settle(self) -> None:
        self._context = [*self._context, *self._held][-self.NUM_CONTEXT :]
        self._held, self._num_released = [], 0

    def _held_text(self) -> str:
        known = self._decode(self._context) if self._context else ""
        text = self._decode([*self._context, *self._held])
        while not text.startswith(known):
            known = known[:-1]  # the new tokens would change text that is already released
        return text[len(known) :]
