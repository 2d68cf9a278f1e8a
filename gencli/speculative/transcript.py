"""A growing text in the tokens of another vocabulary; only its end is tokenized again as it grows."""

from __future__ import annotations

import codecs
import copy

from gencli.speculative.base import Text
from gencli.speculative.translation import Translation
from processors.grammar.state.forced_tokens import tokens_behind

__all__ = ["Transcript"]

_OPEN_BYTES = 32  # bytes at the end of the open text, whose tokens may change with later text
_MAX_OPEN = 128  # characters that are tokenized again before some of their tokens are settled
_ANCHOR = 32  # characters of context before them for the tokenizer


class Transcript:
    """The text of target tokens, in the tokens of the draft model, after its beginning-of-text token.

    The result depends on the target tokens alone, not on when it is read. A special token of the target
    becomes the draft model's of the same name, or nothing; no token spans it. Bytes of an incomplete
    character are `pending` and not part of the tokens.
    """

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._settled = list(translation.beginning)
        self._before, self._open = "", ""  # settled text before the open text; open text
        self._spelled: tuple[int, ...] | None = ()  # tokens of the open text; None if not computed
        self.num_read = 0  # number of target tokens so far

    def fork(self) -> Transcript:
        """Return an independent copy."""
        other = copy.copy(self)
        other._utf8, other._settled = copy.copy(self._utf8), self._settled.copy()
        return other

    @property
    def num_settled(self) -> int:
        """Number of draft model tokens that later text cannot change."""
        return len(self._settled)

    @property
    def tokens(self) -> Text:
        """The text in tokens of the draft model."""
        if self._spelled is None:
            self._spelled = self._spell()
        return Text(self._settled, self._spelled)

    @property
    def anchor(self) -> str:
        """The last 32 characters of the text."""
        return (self._before + self._open)[-_ANCHOR:]

    @property
    def pending(self) -> bytes:
        """The bytes of an incomplete character at the end."""
        return self._utf8.getstate()[0]

    def push(self, token: int) -> None:
        """Append a target token."""
        self._spelled = None
        self.num_read += 1
        if token in self._translation.target.special_ids:
            self._mark(token)
            return
        known = self._translation.target.token_bytes  # prompts may have ids beyond the tokenizer
        self._open += self._utf8.decode(known[token] if token < len(known) else b"")
        if len(self._open) > _MAX_OPEN:
            self._settle()

    def _mark(self, token: int) -> None:
        self._open += self._utf8.decode(b"", final=True)
        self._settled += self._spell()
        self._before = self._open = ""
        is_beginning = self.num_read == 1 and token == self._translation.target.bos_id
        if not is_beginning and (marker := self._translation.to_draft.get(token)) is not None:
            self._settled.append(marker)

    def _spell(self) -> tuple[int, ...]:
        if not self._open:
            return ()
        draft = self._translation.draft
        behind = tokens_behind(draft, self._before, self._open) if self._before else ()
        return behind or tuple(draft.encode(self._open, special=False))

    def _settle(self) -> None:
        """Settle the tokens of the open text except for at least its last 32 bytes."""
        tokens, data, rest = self._spell(), self._open.encode(), b""
        for i in range(len(tokens) - 1, 0, -1):
            rest = self._translation.draft.token_bytes[tokens[i]] + rest
            if len(rest) >= _OPEN_BYTES and data.endswith(rest) and _begins_a_character(rest):
                self._advance(tokens[:i], len(self._open) - len(rest.decode()))
                return
        # The tokens do not spell the text exactly, so any boundary is as good.
        boundary = len(self._open) - _OPEN_BYTES
        self._advance(tuple(self._translation.draft.encode(self._open[:boundary], special=False)), boundary)

    def _advance(self, tokens: tuple[int, ...], boundary: int) -> None:
        self._settled += tokens
        self._before = (self._before + self._open[:boundary])[-_ANCHOR:]
        self._open = self._open[boundary:]


def _begins_a_character(data: bytes) -> bool:
    return data[0] & 0xC0 != 0x80
