"""`SeparatorModel`: n-gram counts of the separators of a JSON text, to predict the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["JsonContext", "SeparatorModel"]

_DEPTH = 4  # structural characters of the longest context
_FACTOR = 4.0  # weight factor of a context for each of its structural characters
_PRIOR = 1.0  # tokens seen in a context at which the context has half its weight
_DEFAULT_WEIGHT = 0.25  # weight of a token of the default texts; tokens of the text itself weigh 1
_DEFAULT_TEXTS = (
    '{"a": 1, "b": "c", "d": [1, 2], "e": ["f", "g"], "h": {"i": true}, "j": [{"k": "l"}]}',
    '{\n  "a": 1,\n  "b": [\n    2\n  ]\n}',
)
_STRUCTURAL = b"{}[]:, \n\t\r"
_QUOTE, _BACKSLASH = b'"\\'


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
            if in_string and (is_escaped or byte == _BACKSLASH):
                is_escaped = not is_escaped
            elif byte == _QUOTE:
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
            model.signs = JsonContext()
            for token in vocabulary.encode(text, special=False):
                model.add(token, vocabulary.token_bytes[token], _DEFAULT_WEIGHT)
        model.signs = JsonContext()
        return model

    def copy(self) -> SeparatorModel:
        """Return an independent copy."""
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
        found: dict[int, float] = {}
        for context, factor in signs.contexts():
            counts = self._counts.get(context, {})
            share = factor / (_PRIOR + sum(counts.values()))
            for token, count in counts.items():
                found[token] = found.get(token, 0.0) + share * count
        return found
