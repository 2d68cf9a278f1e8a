r"""Search for a regular expression in text that arrives in pieces.

A pattern is searched after every character as if the text ended there, and the first match counts: `\d+`
stops at the first digit, and `$`, `\b`, `(?!...)` are evaluated at the newest character. Text that may still
become a match is held back; partial matching of the `regex` package finds its start. Partial matching does
not foresee a negated end such as `(?!$)`, so such a match may be missed.

A match spans at most MAX_WINDOW characters, and lookbehind sees at most NUM_CONTEXT characters before it.
"""

from __future__ import annotations

import math
import re
import time
from functools import lru_cache
from typing import Any

from gencli.errors import GenerationError, UsageError
from gencli.text.automaton import Found

__all__ = ["MAX_WINDOW", "NUM_CONTEXT", "PatternFinder", "check_pattern"]

MAX_WINDOW = 4096
NUM_CONTEXT = 256
_TIMEOUT = 0.5  # seconds for one search; usual patterns take microseconds
_MAX_SECONDS, _PER_CHARACTER = 0.5, 0.001  # CPU seconds for the searches of a text: fixed, per character

# Partial matching treats the end of the text as final in \b, \B, \m and \M, but not in a lookahead: after
# "\n", `\n\bUser` has failed and `\n(?=\w)User` has not. Escapes and [classes] are matched to skip them.
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_MAX_PARTS = 100_000  # parts of a pattern with its minimum repeats written out
_ATOM = re.compile(r"\{(\d+)(?:,\d*)?\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_COMMENTS = re.compile(r"\(\?#|\(\?[^):]*x")
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
    # The import takes 20 ms, and only stop patterns need it.
    import regex  # type: ignore[import-untyped]

    _check_size(pattern)
    try:
        regex.compile(pattern)  # compiled as given, so that errors show the given pattern
        compiled = regex.compile(_PART.sub(lambda part: _BOUNDARIES.get(part[0], part[0]), pattern))
    except (regex.error, ValueError, OverflowError) as error:  # the last two for huge counts
        raise UsageError(f"The stop pattern {_short(pattern)} is not valid: {error}.") from error
    except RecursionError:
        raise UsageError(f"The stop pattern {_short(pattern)} is nested too deep.") from None
    if compiled.flags & regex.REVERSE:
        raise UsageError(f"The stop pattern {pattern!r} searches backwards, which a stream cannot.")
    try:
        matches_nothing = compiled.search("", timeout=_TIMEOUT)
    except TimeoutError:
        raise UsageError(f"The stop pattern {_short(pattern)} takes over {_TIMEOUT} s.") from None
    if matches_nothing:
        raise UsageError(
            f"The stop pattern {pattern!r} matches the empty text.",
            hint="It would stop before the first token; make it need a character (+ for *).",
        )
    return compiled


def _check_size(pattern: str) -> None:
    """Raise UsageError for a pattern whose repeats are too large.

    `regex` copies a part for each minimum repeat. A copy takes 280 bytes, so `a{99999999}` would take 26 GiB.
    """
    if _num_parts(pattern) > _MAX_PARTS:
        raise UsageError(
            f"The stop pattern {_short(pattern)} repeats too often: written out it has more than "
            f"{_MAX_PARTS:,} parts.",
            hint="Lower the counts in { }.",
        )


def _num_parts(pattern: str) -> int:
    """Return an upper bound of the number of parts of a pattern with its minimum repeats written out.

    If comments stand between a part and its count, each count is taken for one of the whole pattern.
    """
    if _COMMENTS.search(pattern):
        return len(pattern) * math.prod(_least(found[1]) for found in _ATOM.finditer(pattern) if found[1])
    totals, lasts = [0], [0]  # by open group: number of parts, and number of parts of its last item
    for found in _ATOM.finditer(pattern):
        if found[1]:
            more = lasts[-1] * (_least(found[1]) - 1)
            totals[-1], lasts[-1] = totals[-1] + more, lasts[-1] + more
        elif found[0] == "(":
            totals.append(1)
            lasts.append(0)
        else:
            size = totals.pop() if (is_end := found[0] == ")" and len(totals) > 1) else 1
            if is_end:
                lasts.pop()
            totals[-1], lasts[-1] = totals[-1] + size, size
    return sum(totals)


def _least(count: str) -> int:
    return max(1, int(count)) if len(count) < 10 else _MAX_PARTS + 1


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")


class PatternFinder:
    """Finds the match of a pattern that completes first; among matches completing at once, the leftmost."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._compiled = _compiled(pattern)
        self._text = ""  # last part of the text read so far
        self._base = 0  # characters before _text
        self._from = 0  # index in _text from which a match may begin
        self._spent = 0.0  # seconds of computation

    @property
    def num_held(self) -> int:
        """Number of last characters in which a match may have begun."""
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
            match = self._compiled.search(self._text, self._from, end, partial=partial, timeout=_TIMEOUT)
        except TimeoutError as error:
            raise self._slow(f"over {_TIMEOUT} s on {end - self._from} characters") from error
        self._spent += time.thread_time() - begin
        size = self._base + end
        if self._spent > _MAX_SECONDS + _PER_CHARACTER * size:
            raise self._slow(f"over {self._spent:.1f} s in total on {size} characters")
        return match

    def _slow(self, what: str) -> GenerationError:
        return GenerationError(
            f"The stop pattern {self._pattern!r} took {what}.",
            hint="Nested repeats such as (a+)+ and repeated back-references are slow; write it without them.",
        )

    def _advance(self) -> None:
        """Advance `_from` to the first index at which a match may begin, past matches that did not count."""
        end = len(self._text)
        while (match := self._search(end, partial=True)) and not match.partial:
            self._from = match.start() + 1
            if self._from > end:
                break
        self._from = min(match.start(), end) if match and match.partial else end
        self._from = max(self._from, end - MAX_WINDOW)
        if self._from > 2 * NUM_CONTEXT:
            # At least one character is kept in front, so that ^ does not match here.
            cut = self._from - NUM_CONTEXT
            self._text, self._base, self._from = self._text[cut:], self._base + cut, NUM_CONTEXT
