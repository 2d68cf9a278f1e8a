r"""Looking for a regular expression in text that arrives in pieces.

A pattern is tried after every character as if the text ended there, and the first success counts:
`\d+` stops at the first digit, and `$`, `\b`, `(?!...)` are judged at the newest character. What a
pattern may still turn into a match is held back; the `regex` package's partial matching says from
where. What it cannot foresee is a denied end, as `(?!$)`: such a match may be missed.

A match spans at most MAX_WINDOW characters, and looks at most NUM_CONTEXT behind itself.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import Any

from gencli.errors import GenerationError, UsageError
from gencli.text.automaton import Found

__all__ = ["MAX_WINDOW", "NUM_CONTEXT", "PatternFinder", "check_pattern"]

MAX_WINDOW = 4096
NUM_CONTEXT = 256
_TIMEOUT = 0.5  # seconds for one search; an honest pattern takes microseconds
_PATIENCE, _PER_CHARACTER = 2.0, 0.001  # seconds of computing for all searches of one text, and its length

# Partial matching takes the end of the text for a fact in \b and its kin, but not in a lookahead: after
# "\n", `\n\bUser` has failed and `\n(?=\w)User` has not. Escapes and [classes] are read to step over them.
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BOUNDARIES = {
    r"\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))",
    r"\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
    r"\m": r"(?:(?<!\w)(?=\w))",
    r"\M": r"(?:(?<=\w)(?!\w))",
}


def check_pattern(pattern: str) -> None:
    """Raise UsageError unless `pattern` is a regular expression that needs some text to match."""
    _compiled(pattern)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
    # It comes with transformers; the import takes 20 ms, and only these patterns need it.
    import regex  # type: ignore[import-untyped]

    try:
        regex.compile(pattern)  # what was written, so that an error speaks of that
        compiled = regex.compile(_PART.sub(lambda part: _BOUNDARIES.get(part[0], part[0]), pattern))
    except regex.error as error:
        raise UsageError(f"The stop pattern {pattern!r} is not valid: {error}") from error
    if compiled.flags & regex.REVERSE:
        raise UsageError(f"The stop pattern {pattern!r} searches backwards, which a stream cannot")
    if compiled.search("", timeout=_TIMEOUT):
        raise UsageError(
            f"The stop pattern {pattern!r} matches the empty text",
            hint="It would stop before the first token; make it need a character (+ for *).",
        )
    return compiled


class PatternFinder:
    """Finds the match of one pattern that completes earliest; of several at once, the leftmost."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._compiled = _compiled(pattern)
        self._text = ""  # the end of what was read
        self._base = 0  # characters before _text
        self._from = 0  # where in _text a match may begin
        self._spent = 0.0  # seconds of computing

    @property
    def num_held(self) -> int:
        """How many of the last characters may be the beginning of a match."""
        return len(self._text) - self._from

    def feed(self, text: str, *, armed: bool = True) -> Found | None:
        """Read `text`; a match that completes in it counts only if `armed`.

        Raises GenerationError if the pattern takes too long.
        """
        num_old = len(self._text)
        self._text += text
        if armed:
            for end in range(num_old + 1, len(self._text) + 1):
                if match := self._search(end):
                    return Found(self._base + match.start(), self._base + match.end(), self._base + end)
        self._advance()
        return None

    def _search(self, end: int, *, partial: bool = False) -> Any:
        begin = time.thread_time()
        try:
            found = self._compiled.search(self._text, self._from, end, partial=partial, timeout=_TIMEOUT)
        except TimeoutError as error:
            raise self._slow(f"over {_TIMEOUT} s on {end - self._from} characters") from error
        self._spent += time.thread_time() - begin
        size = self._base + end
        if self._spent > _PATIENCE + _PER_CHARACTER * size:
            raise self._slow(f"over {self._spent:.1f} s in all on {size} characters")
        return found

    def _slow(self, what: str) -> GenerationError:
        return GenerationError(
            f"The stop pattern {self._pattern!r} took {what}",
            hint="Repeats such as (a+)+, or of a group that is referred to, are slow; write it without them.",
        )

    def _advance(self) -> None:
        """Move to the first place where a match may yet begin, past those that did not count."""
        end = len(self._text)
        while (match := self._search(end, partial=True)) and not match.partial:
            self._from = match.start() + 1
            if self._from > end:
                break
        self._from = min(match.start(), end) if match and match.partial else end
        self._from = max(self._from, end - MAX_WINDOW)
        if self._from > 2 * NUM_CONTEXT:
            # One character at least stays in front, so that ^ does not see a new beginning.
            cut = self._from - NUM_CONTEXT
            self._text, self._base, self._from = self._text[cut:], self._base + cut, NUM_CONTEXT
