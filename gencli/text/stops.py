"""Stop strings and stop patterns: finds the first match, and releases the text before it.

The match that completes first wins; among matches completing at the same character, the first listed, strings
before patterns. Text is held back only while a match may begin in it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gencli.text.automaton import Found, StringFinder
from gencli.text.patterns import PatternFinder

__all__ = ["StopMatch", "StopMatcher"]


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The text that matched, and the number of output characters before it."""

    text: str
    offset: int


class StopMatcher:
    """Releases text up to the first match.

    `match` is None until a match is found; then nothing more may be pushed. The released text ends before
    the match, or after it with `include`. Raises UsageError for an empty string, and for a pattern that is
    not valid or matches the empty text.
    """

    def __init__(
        self, strings: Sequence[str] = (), patterns: Sequence[str] = (), include: bool = False
    ) -> None:
        self.match: StopMatch | None = None
        self._include = include
        self._strings, self._patterns = tuple(strings), tuple(patterns)
        self._finders = self._new_finders()
        self._held: deque[tuple[str, bool]] = deque()  # text not yet released, and whether it is hidden
        self._num_held = 0  # characters in _held, hidden ones included
        self._num_read = 0  # characters given to the finders, hidden ones included
        self._num_shown = 0  # characters released, counted only if there are stops

    def fork(self) -> StopMatcher:
        """Return an independent copy."""
        other = copy.copy(self)
        other._finders = [copy.copy(finder) for finder in self._finders]
        other._held = self._held.copy()
        return other

    def push(self, text: str, *, hidden: bool = False, armed: bool = True) -> str:
        """Add text; return the text that is certain to be output.

        `hidden` text is searched but never shown, except as part of a match with `include`. A match
        counts only if it completes in `armed` text.
        """
        assert self.match is None, "text after a match"
        if not self._finders:
            return "" if hidden else text
        if not text:
            return ""
        self._held.append((text, hidden))
        self._num_held += len(text)
        self._num_read += len(text)
        matches = [match for finder in self._finders if (match := finder.feed(text, armed=armed))]
        if matches:
            return self._end(min(matches, key=lambda match: match.done))
        return self._take(self._num_held - max(finder.num_held for finder in self._finders))

    def skip(self, text: str) -> str:
        """Add text in which no match may begin or end; return the text that is certain."""
        shown = self.flush()
        if self._num_read:
            self._finders, self._num_read = self._new_finders(), 0
        self._num_shown += len(text)
        return shown + text

    def _new_finders(self) -> list[StringFinder | PatternFinder]:
        strings = [StringFinder(self._strings)] if self._strings else []
        return [*strings, *map(PatternFinder, self._patterns)]

    def flush(self) -> str:
        """End the text; return the text that was held back."""
        return self._take(self._num_held)

    def _end(self, first: Found) -> str:
        shown = self._take(first.start - (self._num_read - self._num_held))
        text = "".join(text for text, _ in self._held)[: first.stop - first.start]
        self.match = StopMatch(text, self._num_shown)
        self._held.clear()
        self._num_held = 0
        return shown + text if self._include else shown

    def _take(self, count: int) -> str:
        """Release the first `count` held characters; return the visible ones."""
        shown = []
        self._num_held -= count
        while count > 0:
            text, hidden = self._held.popleft()
            if len(text) > count:
                self._held.appendleft((text[count:], hidden))
                text = text[:count]
            count -= len(text)
            if not hidden:
                shown.append(text)
        released = "".join(shown)
        self._num_shown += len(released)
        return released
