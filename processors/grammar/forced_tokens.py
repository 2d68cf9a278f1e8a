"""`CanonicalTokenizer`: tokenizes forced text as the tokenizer would.

`SeparatorModel`: n-gram counts of the separators of a JSON text, to predict the next one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from processors.base import Vocabulary


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
        self._behind = partial(tokens_behind, vocabulary)
        self.token_bytes = vocabulary.token_bytes
        # Ids of the single bytes; some vocabularies lack a few of them.
        self.byte_ids = {data[0]: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        self._sorted = sorted(filter(None, self.token_bytes))
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._tokenize)
        self._alone = lru_cache(maxsize=_REMEMBERED)(self._tokenize_alone)

    def join(self, before: bytes, token: int) -> bytes:
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
        if size == 0 and kept:
            last = self.token_bytes[kept[-1]]
            after = bisect_right(self._sorted, last)
            if any(longer.startswith(last) for longer in self._sorted[after : after + 1]):
                kept.pop()
        return tuple(kept)


def tokens_behind(vocabulary: Vocabulary, anchor: str, text: str) -> tuple[int, ...]:
    """Return the tokens of `text` after `anchor`; () if no token starts at the border."""
    token_bytes = vocabulary.token_bytes
    ids = vocabulary.encode(anchor + text, special=False)
    ends = list(accumulate((len(token_bytes[token]) for token in ids), initial=0))
    # Counted from the end, as some tokenizers put a space before every text.
    start = ends[-1] - len(text.encode())
    behind = ids[ends.index(start) :] if start in ends else []
    return tuple(behind) if b"".join(token_bytes[token] for token in behind) == text.encode() else ()


_DEPTH = 4  # structural characters of the longest context
_FACTOR = 4.0  # weight factor of a context for each of its structural characters
_PRIOR = 1.0  # tokens seen in a context at which the context has half its weight
_DEFAULT_WEIGHT = 0.25  # weight of a token of the default texts; tokens of the text itself weigh 1
_DEFAULT_TEXTS = (
    '{"a": 1, "b": "c", "d": [1, 2], "e": ["f", "g"], "h": {"i": true}, "j": [{"k": "l"}]}',
    '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}',
)
_STRUCTURAL = b"{}[]:, \n\t\r"
QUOTE, BACKSLASH = STRING_SIGNS = b'"\\'  # characters with a meaning inside a string


class JsonContext(NamedTuple):
    """The last structural characters of a text. A string counts as two quotes, a number or word as `a`.

    `depth`: lists and objects that are open.
    """

    last: bytes = b""
    in_string: bool = False
    is_escaped: bool = False
    depth: int = 0

    def after(self, data: bytes) -> JsonContext:
        """Return the context after these bytes."""
        last, in_string, is_escaped, depth = self
        for byte in data:
            if in_string and (is_escaped or byte == BACKSLASH):
                is_escaped = not is_escaped
            elif byte == QUOTE:
                last, in_string = last + b'"', not in_string
            elif not in_string:
                is_sign = byte in _STRUCTURAL
                depth += (byte in b"[{") - (byte in b"]}")
                last += bytes([byte]) if is_sign else b"" if last.endswith(b"a") else b"a"
        return JsonContext(last[-_DEPTH:], in_string, is_escaped, depth)

    def contexts(self) -> Iterator[tuple[bytes, float]]:
        """Yield (context, weight) for every suffix of the last 4 structural characters, longest heaviest."""
        for size in range(len(self.last) + 1):
            yield self.last[len(self.last) - size :], _FACTOR**size


class SeparatorModel:
    """Counts, by context, the tokens of one JSON text outside strings. Depends on the text alone."""

    def __init__(self) -> None:
        self.signs = JsonContext()
        self._counts: dict[bytes, dict[int, float]] = {}

    @classmethod
    def usual(cls, vocabulary: Vocabulary) -> SeparatorModel:
        """Return the default model, from two short JSON texts."""
        model = cls()
        for text in _DEFAULT_TEXTS:
            for token in vocabulary.encode(text, special=False):
                model.add(token, vocabulary.token_bytes[token], _DEFAULT_WEIGHT)
            model.signs = JsonContext()
        return model

    def copy(self) -> SeparatorModel:
        model = SeparatorModel()
        model.signs = self.signs
        model._counts = {context: counts.copy() for context, counts in self._counts.items()}
        return model

    def add(self, token: int, data: bytes, weight: float = 1.0) -> None:
        """Count a token of these bytes as the continuation of the text."""
        later = self.signs.after(data)
        if not (self.signs.in_string and later.in_string):
            for context, _ in self.signs.contexts():
                counts = self._counts.setdefault(context, {})
                counts[token] = counts.get(token, 0.0) + weight
        self.signs = later

    def weights(self, signs: JsonContext) -> dict[int, float]:
        """Return the weight of each known token as the continuation of a context."""
        weights: dict[int, float] = {}
        for context, factor in signs.contexts():
            counts = self._counts.get(context, {})
            share = factor / (_PRIOR + sum(counts.values()))
            for token, count in counts.items():
                weights[token] = weights.get(token, 0.0) + share * count
        return weights
