"""`Spot`: a position in a document that can advance and roll back."""

from __future__ import annotations

from collections.abc import Sequence

from processors.grammar.backends.base import Matcher
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.guide import Guide
from processors.grammar.state.json_statistics import JsonContext

__all__ = ["Spot"]


class Spot:
    """A position in a document: matcher, last bytes of the text and, in JSON, its context (else None).

    `samples` are texts that strings of the grammar may end with, `guide` lists whole ones. A spot can advance
    by tokens and roll back; `tokens` are those since its start.
    """

    def __init__(
        self,
        matcher: Matcher,
        text: bytes,
        signs: JsonContext | None,
        canonical: CanonicalTokenizer,
        samples: Sequence[str] = (),
        guide: Guide | None = None,
    ) -> None:
        self.matcher, self.text, self.signs, self.samples = matcher, text, signs, samples
        self.guide = guide or Guide()
        self.tokens: list[int] = []
        self.canonical = canonical
        self._undo: list[tuple[bytes, JsonContext | None]] = []

    @property
    def in_string(self) -> bool:
        """Whether the position is inside a JSON string, but not inside an escape."""
        return self.signs is not None and self.signs.in_string and not self.signs.is_escaped

    def accept(self, token: int) -> bool:
        """Advance by a token; return False, and change nothing, if the grammar forbids it."""
        if not self.matcher.accept(token):
            return False
        self.note(token)
        return True

    def note(self, token: int) -> None:
        """Record a token that the matcher has already accepted."""
        self.tokens.append(token)
        self._undo.append((self.text, self.signs))
        self.text = self.canonical.join(self.text, token)
        self.signs = self.signs and self.signs.after(self.canonical.token_bytes[token])

    def rollback(self, count: int) -> None:
        """Undo the last `count` tokens."""
        if count:
            self.matcher.rollback(count)
            self.text, self.signs = self._undo[-count]
            del self.tokens[-count:], self._undo[-count:]
