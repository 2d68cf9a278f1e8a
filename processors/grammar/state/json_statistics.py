"""How a JSON text has gone on between its parts: which tokens came behind which signs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["JsonContext", "SeparatorModel"]

_DEPTH = 4  # signs that a place is known by
_TRUST = 4.0  # so much more says a place that is alike in one sign more
_DOUBT = 1.0  # so many tokens have to be seen at a place until it counts for half
_FIRST = 0.25  # what a usual text says beside the text itself
_USUAL = (
    '{"a": 1, "b": "c", "d": [1, 2], "e": ["f", "g"], "h": {"i": true}, "j": [{"k": "l"}]}',
    '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}',
)
_SIGNS = b"{}[]:, \n\t\r"
_QUOTE, _BACKSLASH = b'"\\'


class JsonContext(NamedTuple):
    """The last signs of a text: a string is two quotes, a number or a word one sign."""

    last: bytes = b""
    in_string: bool = False
    is_escaped: bool = False

    def after(self, data: bytes) -> JsonContext:
        """The signs when these bytes have come as well."""
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

    def places(self) -> Iterator[tuple[bytes, float]]:
        """What the place is known by, and what that says: no sign, the last one, the last two..."""
        for size in range(len(self.last) + 1):
            yield self.last[len(self.last) - size :], _TRUST**size


class SeparatorModel:
    """Counts the tokens of one text between its parts. It depends on the text alone, and is a guess."""

    def __init__(self) -> None:
        self.signs = JsonContext()
        self._counts: dict[bytes, dict[int, float]] = {}

    @classmethod
    def usual(cls, vocabulary: Vocabulary) -> SeparatorModel:
        """Those of a text of which nothing is known yet."""
        made = cls()
        for text in _USUAL:
            made.signs = JsonContext()
            for token in vocabulary.encode(text, special=False):
                made.add(token, vocabulary.token_bytes[token], _FIRST)
        made.signs = JsonContext()
        return made

    def copy(self) -> SeparatorModel:
        """An independent copy."""
        made = SeparatorModel()
        made.signs = self.signs
        made._counts = {place: seen.copy() for place, seen in self._counts.items()}
        return made

    def add(self, token: int, data: bytes, weight: float = 1.0) -> None:
        """The text has gone on by a token of these bytes."""
        later = self.signs.after(data)
        if not (self.signs.in_string and later.in_string):
            for place, _ in self.signs.places():
                seen = self._counts.setdefault(place, {})
                seen[token] = seen.get(token, 0.0) + weight
        self.signs = later

    def weights(self, signs: JsonContext) -> dict[int, float]:
        """How much speaks for each token that stands between parts, behind these signs."""
        found: dict[int, float] = {}
        for place, trust in signs.places():
            seen = self._counts.get(place, {})
            share = trust / (_DOUBT + sum(seen.values()))
            for token, count in seen.items():
                found[token] = found.get(token, 0.0) + share * count
        return found
