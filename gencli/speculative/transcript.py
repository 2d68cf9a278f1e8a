"""A growing text in the tokens of another vocabulary: its end is spelled anew as it grows, the rest once."""

from __future__ import annotations

import codecs
import copy

from gencli.speculative.base import Text
from gencli.speculative.translation import Translation
from processors.grammar.state.forced_tokens import tokens_behind

__all__ = ["Transcript"]

_KEPT = 32  # bytes at the end whose tokens may change with what follows
_LONGEST = 128  # characters that are spelled anew, before tokens of them are settled
_ANCHOR = 32  # characters before them that their tokenizer sees


class Transcript:
    """The text of target tokens, as the draft reads it: behind what its tokenizer begins a text with.

    It depends on the tokens alone and not on when it was asked. Markers of the target are the draft's of
    the same name, or nothing; either way no token goes across. Bytes of a character that is not complete
    are `pending`, and not in the tokens.
    """

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._settled = list(translation.beginning)
        self._before, self._open = "", ""  # what the open text stands behind, and that
        self._spelled: tuple[int, ...] | None = ()  # the tokens of the open text, once asked for
        self.num_read = 0  # target tokens

    def fork(self) -> Transcript:
        """An independent copy, which goes on from here."""
        other = copy.copy(self)
        other._utf8, other._settled = copy.copy(self._utf8), self._settled.copy()
        return other

    @property
    def num_settled(self) -> int:
        """So many tokens of the text stay what they are."""
        return len(self._settled)

    @property
    def tokens(self) -> Text:
        """The text in the draft's tokens."""
        if self._spelled is None:
            self._spelled = self._spell()
        return Text(self._settled, self._spelled)

    @property
    def anchor(self) -> str:
        """The end of the text."""
        return (self._before + self._open)[-_ANCHOR:]

    @property
    def pending(self) -> bytes:
        """The bytes behind the end, which complete no character yet."""
        return self._utf8.getstate()[0]

    def push(self, token: int) -> None:
        """The text is one target token longer."""
        self._spelled = None
        self.num_read += 1
        if token in self._translation.target.special_ids:
            self._mark(token)
            return
        known = self._translation.target.token_bytes  # prompts may have ids that no tokenizer knows
        self._open += self._utf8.decode(known[token] if token < len(known) else b"")
        if len(self._open) > _LONGEST:
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
        """Give the tokens of all but the end for good."""
        tokens, data, rest = self._spell(), self._open.encode(), b""
        for i in range(len(tokens) - 1, 0, -1):
            rest = self._translation.draft.token_bytes[tokens[i]] + rest
            if len(rest) >= _KEPT and data.endswith(rest) and _begins_a_character(rest):
                self._advance(tokens[:i], len(self._open) - len(rest.decode()))
                return
        # Its tokens do not spell the text as it is: any place will do.
        place = len(self._open) - _KEPT
        self._advance(tuple(self._translation.draft.encode(self._open[:place], special=False)), place)

    def _advance(self, tokens: tuple[int, ...], place: int) -> None:
        self._settled += tokens
        self._before = (self._before + self._open[:place])[-_ANCHOR:]
        self._open = self._open[place:]


def _begins_a_character(data: bytes) -> bool:
    return data[0] & 0xC0 != 0x80
