"""`CanonicalTokenizer`: tokenizes forced text as the tokenizer would."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["ANCHOR", "PROBES", "CanonicalTokenizer", "tokens_behind"]

_KEPT = 256  # last bytes of the text that are kept
ANCHOR = 16  # bytes before the forced text given to the tokenizer; more than its tokens depend on
_LONGEST = 256  # bytes of forced text tokenized at a time
_REMEMBERED = 4096
# Continuations of forced text. A token is certain if it is the same before all of these, and is no proper
# prefix of another token.
PROBES = ("a", "T", " a", "0", '"', "\n", ",", "}", "é")


class CanonicalTokenizer:
    """Tokenizes forced text, up to the first token that later text could change."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.token_bytes = vocabulary.token_bytes
        # Ids of the single bytes; some vocabularies lack a few of them.
        self.byte_ids = {data[0]: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        self._sorted = sorted(filter(None, self.token_bytes))
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._tokenize)
        self._alone = lru_cache(maxsize=_REMEMBERED)(self._tokenize_alone)

    def join(self, before: bytes, token: int) -> bytes:
        """Return the end of the text after one more token."""
        return (before + self.token_bytes[token])[-_KEPT:]

    def tokenize_forced(self, before: bytes, forced: bytes) -> tuple[int, ...]:
        """Return the certain tokens at the start of `forced` after the text `before`.

        Empty if the tokenizer would merge across the border, or if later text could change the first token.
        """
        return self._remembered(before[-ANCHOR:], forced[:_LONGEST]) if forced else ()

    def _tokenize(self, before: bytes, forced: bytes) -> tuple[int, ...]:
        text, anchor = forced.decode(errors="ignore"), before.decode(errors="ignore")
        alone, example = self._alone(text)
        # The preceding text rarely changes the tokens; one comparison then saves tokenizing nine more texts.
        if not anchor or self._behind(anchor, text + PROBES[0]) == example:
            return alone
        return self._stable(anchor, text) or alone

    def _tokenize_alone(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the certain tokens at a text's start, and all tokens of the text with the first probe."""
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
        """Whether a longer token starts with these bytes."""
        index = bisect_right(self._sorted, data)
        return index < len(self._sorted) and self._sorted[index].startswith(data)

    def _behind(self, anchor: str, text: str) -> tuple[int, ...]:
        return tokens_behind(self._vocabulary, anchor, text)


def tokens_behind(vocabulary: Vocabulary, anchor: str, text: str) -> tuple[int, ...]:
    """Return the tokens of `text` after `anchor`; () if no token starts at the border."""
    token_bytes = vocabulary.token_bytes
    ids = vocabulary.encode(anchor + text, special=False)
    ends = list(accumulate((len(token_bytes[token]) for token in ids), initial=0))
    # Counted from the end, as some tokenizers put a space before every text.
    start = ends[-1] - len(text.encode())
    behind = ids[ends.index(start) :] if start in ends else []
    return tuple(behind) if b"".join(token_bytes[token] for token in behind) == text.encode() else ()
