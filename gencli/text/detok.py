"""Token ids to text, one token at a time.

Joined, what a decoder gives is the text of all its tokens, whatever the pace: characters whose bytes
are not complete are held, and become U+FFFD only when they can no longer complete. A decoder that is
given the prompt continues it, so that the space between prompt and output is kept.

The `tokenizers` library's DecodeStream is not used: it raises "invalid prefix" where a broken run of
`<0xNN>` tokens rewrites text that is out already, and a sequence that never completes makes each
further token dearer.
"""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Sequence
from typing import Protocol

from gencli.text.pieces import Pieces

__all__ = ["ByteDecoder", "TokenDecoder", "WindowDecoder"]


class TokenDecoder(Protocol):
    """The text of one growing sequence of tokens."""

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain, "" for a hidden special token."""
        ...

    def hidden(self, token_id: int) -> str:
        """The name of a special token that `push` hides; "" for every other token."""
        ...

    def flush(self) -> str:
        """End the text; incomplete bytes become U+FFFD."""
        ...

    def fork(self) -> TokenDecoder:
        """An independent copy, which goes on from here."""
        ...


class ByteDecoder:
    """Exact and constant time, for vocabularies whose tokens are bytes whatever their neighbours."""

    def __init__(self, pieces: Pieces, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> None:
        self._pieces = pieces
        self._hidden = pieces.special_ids if skip_special else frozenset[int]()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_first = True
        self._strip_char, self._strip_left = pieces.rules.strip
        for token_id in prompt_ids:
            self.push(token_id)

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain."""
        if token_id in self._hidden:
            return ""
        piece = self._pieces[token_id]
        if piece and (self._is_first or self._strip_left):
            piece = self._open(token_id, piece)
        return self._utf8.decode(piece)

    def hidden(self, token_id: int) -> str:
        """The name of a special token that `push` hides; "" for every other token."""
        return self._pieces[token_id].decode("utf-8", "replace") if token_id in self._hidden else ""

    def flush(self) -> str:
        """End the text; incomplete bytes become U+FFFD."""
        return self._utf8.decode(b"", final=True)

    def fork(self) -> ByteDecoder:
        """An independent copy, which goes on from here."""
        other = copy.copy(self)
        other._utf8 = copy.copy(self._utf8)
        return other

    def _open(self, token_id: int, piece: bytes) -> bytes:
        """The bytes of a token at the front of the text, which some vocabularies trim."""
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


class WindowDecoder:
    """For every other tokenizer: the text a token adds behind the last few tokens.

    Exact where a token's text depends on its near neighbours only. `decode` turns ids into text.
    """

    NUM_CONTEXT = 6  # tokens of text already out that are decoded again with each new one
    MAX_HELD = 4  # tokens; a character has four bytes at most, so an older U+FFFD is genuine

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
        self._held: list[int] = []  # tokens whose text ends in U+FFFD so far
        self._num_given = 0  # characters of the held tokens that are out

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain."""
        if token_id in self._hidden:
            return ""
        self._held.append(token_id)
        text = self._held_text()
        certain = self._certain(text)
        given = certain[self._num_given :]
        if certain == text:
            self._settle()
        else:
            self._num_given = max(self._num_given, len(certain))
        return given

    def hidden(self, token_id: int) -> str:
        """The name of a special token that `push` hides; "" for every other token."""
        return self._name_of(token_id) if token_id in self._hidden else ""

    def flush(self) -> str:
        """End the text; incomplete bytes become U+FFFD."""
        text = self._held_text()[self._num_given :] if self._held else ""
        self._settle()
        return text

    def fork(self) -> WindowDecoder:
        """An independent copy, which goes on from here."""
        other = copy.copy(self)
        other._held = self._held.copy()
        return other

    def _certain(self, text: str) -> str:
        if not text.endswith("\ufffd") or len(self._held) >= 2 * self.MAX_HELD:
            return text
        return text[:-1] if len(self._held) >= self.MAX_HELD else text.rstrip("\ufffd")

    def _settle(self) -> None:
        self._context = [*self._context, *self._held][-self.NUM_CONTEXT :]
        self._held, self._num_given = [], 0

    def _held_text(self) -> str:
        known = self._decode(self._context) if self._context else ""
        text = self._decode([*self._context, *self._held])
        while not text.startswith(known):
            known = known[:-1]  # the new tokens rewrite text before them, which is out already
        return text[len(known) :]
