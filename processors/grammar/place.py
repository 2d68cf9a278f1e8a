"""Where one request stands in its grammar: before the marker, inside the document, or behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from processors.base import Followed, Vocabulary
from processors.grammar.backend import Ask, Matcher
from processors.grammar.canonical import Speller

__all__ = ["Marker", "Place"]


@dataclass(frozen=True, slots=True)
class Marker:
    """The text behind which the document begins, however it is cut into tokens, or as one special token."""

    text: bytes
    ids: tuple[int, ...]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> Marker:
        """The marker as this vocabulary writes it."""
        ids = vocabulary.encode(text, special=False)
        return cls(text.encode(), tuple(ids) if len(ids) == 1 else (), vocabulary)

    def step(self, tail: bytes, token: int) -> bytes | None:
        """The end of the text after one more token; None if the marker is complete."""
        known = self.vocabulary.token_bytes
        text = tail + (known[token] if token < len(known) else b"")
        return None if token in self.ids or self.text in text else text[1 - len(self.text) or len(text) :]


@dataclass(slots=True)
class Place:
    """A slot's state. `tail` is the text so far while the marker is awaited, else None.

    `before` is the end of the document so far, `speller` what writes forced text in tokens. `is_done` says that the text has ended, or holds a token that the grammar does not allow; nothing that
    comes then is used.
    """

    matcher: Matcher
    ends: frozenset[int]
    speller: Speller
    marker: Marker | None = None
    tail: bytes | None = None
    before: bytes = b""
    is_done: bool = False

    def fork(self) -> Place:
        """An independent copy."""
        return replace(self, matcher=self.matcher.fork())

    def free(self, drafts: tuple[int, ...]) -> int:
        """How many of the drafts come before the document; more than there are if it does not begin."""
        tail = self.tail
        for count, token in enumerate(drafts):
            if tail is None or self.marker is None:
                return count
            tail = self.marker.step(tail, token)
        return len(drafts) + (tail is not None)

    def ask(self, drafts: tuple[int, ...], row: int) -> Ask | None:
        """What to ask the back end for the drafts inside the document, the first of them seen by `row`."""
        if self.is_done:
            return None
        end = next((i for i, token in enumerate(drafts) if token in self.ends), len(drafts))
        return Ask(self.matcher, drafts[:end], row)

    def commit(self, tokens: tuple[int, ...]) -> None:
        """These tokens are final."""
        for token in tokens:
            self._commit(token)

    def _commit(self, token: int) -> None:
        if self.is_done:
            return
        if self.tail is not None and self.marker is not None:
            self.tail = self.marker.step(self.tail, token)
        elif token in self.ends or not self.matcher.accept(token):
            self.is_done = True
        else:
            self.before = self.speller.join(self.before, token)

    def forced(self, drafts: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
        """The tokens that have to come after none, one, two ... of the drafts inside the document.

        Shorter than the drafts ask for, if one of them is not legal.
        """
        found: list[tuple[int, ...]] = []
        before = self.before
        try:
            for token in (*drafts, None):
                text = b"" if self.matcher.is_complete() else self.matcher.forced()
                found.append(self.speller.spell(before, text))
                if token is None or token in self.ends or not self.matcher.accept(token):
                    break
                before = self.speller.join(before, token)
        finally:
            self.matcher.rollback(len(found) - 1)
        return found

    def follow(self, tokens: tuple[int, ...]) -> tuple[Followed, ...]:
        """Where the text would stand after each of the tokens; the matcher is afterwards what it was."""
        free, accepted = min(self.free(tokens), len(tokens)), 0
        found = [Followed("free")] * free
        if free and self.free(tokens) == free:  # the marker is complete with the last free token
            found[-1] = self._stand()
        try:
            for token in tokens[free:]:
                if token in self.ends:
                    is_legal = self.matcher.is_complete()
                    found.append(Followed("over" if is_legal else "broken"))
                    break
                if not self.matcher.accept(token):
                    found.append(Followed("broken"))
                    break
                accepted += 1
                found.append(self._stand())
        finally:
            self.matcher.rollback(accepted)
        return tuple(found)

    def _stand(self) -> Followed:
        if not self.matcher.is_complete():
            return Followed("open")
        return Followed("over" if self.matcher.is_over() else "complete")
