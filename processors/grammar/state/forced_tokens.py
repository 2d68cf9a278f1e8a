"""Forced text as tokens: those that the tokenizer would write, as far as what follows cannot change them."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["ANCHOR", "PROBES", "CanonicalTokenizer", "tokens_behind"]

_KEPT = 256  # bytes of text that are known of what came before
ANCHOR = 16  # of them the tokenizer sees these: more than its tokens look back
_LONGEST = 256  # bytes of forced text that are spelled at a time
_REMEMBERED = 4096
# What may follow. A token that stands before all of them, and is no beginning of another, stands.
PROBES = ("a", "T", " a", "0", '"', "\n", ",", "}", "é")


class CanonicalTokenizer:
    """Writes texts in tokens as the tokenizer would."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.token_bytes = vocabulary.token_bytes
        # The ids of single bytes, of which some vocabularies lack a few.
        self.byte_ids = {data[0]: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        self._sorted = sorted(filter(None, self.token_bytes))
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._spell)
        self._alone = lru_cache(maxsize=_REMEMBERED)(self._spell_alone)

    def join(self, before: bytes, token: int) -> bytes:
        """The end of the text, one token later."""
        return (before + self.token_bytes[token])[-_KEPT:]

    def spell(self, before: bytes, forced: bytes) -> tuple[int, ...]:
        """The tokens that `forced` begins with, behind the text `before`.

        Empty if the tokenizer would join the two, or if more text could change the first token.
        """
        return self._remembered(before[-ANCHOR:], forced[:_LONGEST]) if forced else ()

    def _spell(self, before: bytes, forced: bytes) -> tuple[int, ...]:
        text, anchor = forced.decode(errors="ignore"), before.decode(errors="ignore")
        alone, example = self._alone(text)
        # What stands before changes nothing, mostly, and then nine more texts need not be cut.
        if not anchor or self._behind(anchor, text + PROBES[0]) == example:
            return alone
        return self._stable(anchor, text) or alone

    def _spell_alone(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens of a text with nothing before it, and those of one text that it begins."""
        return self._stable("", text), self._behind("", text + PROBES[0])

    def _stable(self, anchor: str, text: str) -> tuple[int, ...]:
        spelled = [self._behind(anchor, text + probe) for probe in PROBES]
        size = len(text.encode())
        kept = []
        for column in zip(*spelled, strict=False):
            if len(self.token_bytes[column[0]]) > size or any(token != column[0] for token in column):
                break
            size -= len(self.token_bytes[column[0]])
            kept.append(column[0])
        if size == 0 and kept and self._may_grow(self.token_bytes[kept[-1]]):
            kept.pop()
        return tuple(kept)

    def _may_grow(self, data: bytes) -> bool:
        """Whether a longer token begins with these bytes."""
        place = bisect_right(self._sorted, data)
        return place < len(self._sorted) and self._sorted[place].startswith(data)

    def _behind(self, anchor: str, text: str) -> tuple[int, ...]:
        return tokens_behind(self._vocabulary, anchor, text)


def tokens_behind(vocabulary: Vocabulary, anchor: str, text: str) -> tuple[int, ...]:
    """The tokens of `text` where it stands behind `anchor`; () if none begins just there."""
    token_bytes = vocabulary.token_bytes
    ids = vocabulary.encode(anchor + text, special=False)
    ends = list(accumulate((len(token_bytes[token]) for token in ids), initial=0))
    # From the end, as some tokenizers put a space before every text.
    start = ends[-1] - len(text.encode())
    behind = ids[ends.index(start) :] if start in ends else []
    return tuple(behind) if b"".join(token_bytes[token] for token in behind) == text.encode() else ()
