"""`SeparatorModel`: n-gram counts of the separators of a JSON text, to predict the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["JsonContext", "SeparatorModel"]

_DEPTH = 4  # structural characters of the longest context
_TRUST = 4.0  # weight factor of a context per structural character
_DOUBT = 1.0  # tokens seen in a context at which it has half its weight
_FIRST = 0.25  # weight of a token of the default texts; tokens of the text itself weigh 1
_USUAL = (
    '{"a": 1, "b": "c", "d": [1, 2], "e": ["f", "g"], "h": {"i": true}, "j": [{"k": "l"}]}',
    '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}',
)
_SIGNS = b"{}[]:, \n\t\r"
_QUOTE, _BACKSLASH = b'"\\'


class JsonContext(NamedTuple):
    """The last structural characters of a text. A string counts as two quotes, a number or word as `a`."""

    last: bytes = b""
    in_string: bool = False
    is_escaped: bool = False

    def after(self, data: bytes) -> JsonContext:
        """Return the context after these bytes."""
        last, in_string, is_escaped = self
        for byte in data:
            if in_string and (is_escaped or byte == _BACKSLASH):
                is_escaped = not is_escaped
            elif byte == _QUOTE:
                last, in_string = last + b'"', not in_string
            elif not in_string:
                is_sign = byte in _SIGNS
                last += bytes([byte]) if is_sign else b"" if last.endswith(b"a") else b"a"
        return JsonContext(last[-_DEPTH:], in_string, is_escaped)

    def contexts(self) -> Iterator[tuple[bytes, float]]:
        """Yield (context, weight) for every suffix of the last 4 structural characters, longest heaviest."""
        for size in range(len(self.last) + 1):
            yield self.last[len(self.last) - size :], _TRUST**size


class SeparatorModel:
    """Counts, by context, the tokens of one JSON text outside strings. Depends on the text alone."""

    def __init__(self) -> None:
        self.signs = JsonContext()
        self._counts: dict[bytes, dict[int, float]] = {}

    @classmethod
    def usual(cls, vocabulary: Vocabulary) -> SeparatorModel:
        """Return the default model, from two short JSON texts."""
        made = cls()
        for text in _USUAL:
            made.signs = JsonContext()
            for token in vocabulary.encode(text, special=False):
                made.add(token, vocabulary.token_bytes[token], _FIRST)
        made.signs = JsonContext()
        return made

    def copy(self) -> SeparatorModel:
        """Return an independent copy."""
        made = SeparatorModel()
        made.signs = self.signs
        made._counts = {place: seen.copy() for place, seen in self._counts.items()}
        return made

    def add(self, token: int, data: bytes, weight: float = 1.0) -> None:
        """Count a token of these bytes as the continuation of the text."""
        later = self.signs.after(data)
        if not (self.signs.in_string and later.in_string):
            for place, _ in self.signs.contexts():
                seen = self._counts.setdefault(place, {})
                seen[token] = seen.get(token, 0.0) + weight
        self.signs = later

    def weights(self, signs: JsonContext) -> dict[int, float]:
        """Return the weight of each known token as the continuation of a context."""
        found: dict[int, float] = {}
        for place, trust in signs.contexts():
            seen = self._counts.get(place, {})
            share = trust / (_DOUBT + sum(seen.values()))
            for token, count in seen.items():
                found[token] = found.get(token, 0.0) + share * count
        return found
