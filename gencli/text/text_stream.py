"""The output text of one sample: tokens in, text out, stop strings and patterns, and the finish reason.

The match that completes first wins, and text is held back only while a match may begin in it. A pattern is
searched after every character as if the text ended there; a match spans at most MAX_WINDOW characters, and
lookbehind sees at most NUM_CONTEXT characters before it.
"""

from __future__ import annotations

import copy
import math
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from gencli.core.request import Stops
from gencli.errors import GenerationError, UsageError
from gencli.helpers import shortened
from gencli.text.detokenizer import TokenDecoder

MAX_PERIOD = 64  # tokens; a looped sentence is shorter


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a sample ends: the `stops` of its request, and conditions from its chain and the model.

    A stop string or pattern counts if it completes after the first `min_tokens` tokens. `ignore_eos`: EOS ids
    are ordinary tokens. A loop is one pattern of up to 64 tokens, `stops.loop` times in a row. Raises
    UsageError for stops that can never occur.
    """

    stops: Stops = field(default_factory=Stops)
    eos_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    max_tokens: int = 512
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        check_strings(self.stops.strings)
        for pattern in self.stops.patterns:
            check_pattern(pattern)
        if (loop := self.stops.loop) < 0 or loop == 1:
            raise UsageError(f"loop is {loop}, but has to be 0 (off) or at least 2 repetitions.")


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a sample ended: eos, stop, length, closed, grammar, loop, interrupted or error.

    closed: a limit was reached in an open document, which was then completed. `matched` is the stop string,
    the text that a pattern matched, the stop or EOS id, or the limit. `offset` is the number of output
    characters before it.
    """

    reason: str
    matched: str | int | None = None
    offset: int | None = None


class Delta(NamedTuple):
    """Text that became certain, and the finish if the sample ended."""

    text: str
    finish: FinishReason | None = None


class TextStream:
    """Turns the tokens of one sample into deltas; their joined texts are the final text."""

    def __init__(self, decoder: TokenDecoder, rules: StopRules) -> None:
        self.finish: FinishReason | None = None
        self.num_tokens = 0
        self._decoder = decoder
        self._rules, stops = rules, rules.stops
        self._matcher = StopMatcher(stops.strings, stops.patterns, stops.include)
        self._loops = LoopDetector(stops.loop)
        self._searches, self._detects = bool(stops.strings or stops.patterns), bool(stops.loop)
        self._ends = frozenset(stops.ids) if rules.ignore_eos else rules.eos_ids | frozenset(stops.ids)
        self._length = 0  # characters released so far

    def fork(self) -> TextStream:
        other = copy.copy(self)
        other._decoder, other._matcher = self._decoder.fork(), self._matcher.fork()
        other._loops = self._loops.fork()
        return other

    def push(self, token_id: int, *, in_document: bool = False, grammar_end: bool = False) -> Delta:
        """Add a generated token.

        Finish reasons are checked in this order: EOS, stop id, stop string or pattern, end of the grammar
        (`grammar_end`: this token completed it), length, loop. `in_document`: the token belongs to a document
        that its grammar has not finished; no stop string begins or ends in it.
        """
        assert self.finish is None, "a token after the end"
        self.num_tokens += 1
        if token_id in self._ends:
            is_eos, shown = token_id in self._rules.eos_ids and not self._rules.ignore_eos, ""
            if self._rules.stops.include and not (shown := self._decoder.hidden(token_id)):
                # Regular text: it may complete the character before it, so it goes through the decoder.
                text = self._matcher.flush()
                shown = self._decoder.push(token_id) + self._decoder.flush()
            else:
                text = self._flush()
            finish = FinishReason("eos" if is_eos else "stop", token_id, self._length + len(text))
            return self._emit(text + shown, finish)
        if not self._searches:
            text = self._decoder.push(token_id)
        elif in_document:
            text = self._matcher.skip(self._decoder.push(token_id))
        else:
            is_armed = self.num_tokens > self._rules.min_tokens
            text = self._matcher.push(self._decoder.push(token_id), armed=is_armed)
            if self._matcher.match is None and (name := self._decoder.hidden(token_id)):
                text += self._matcher.push(name, hidden=True, armed=is_armed)
        if self._matcher.match:
            return self._emit(text, self._matcher.match)
        is_loop = self._detects and self._loops.push(token_id)
        is_full = self.num_tokens >= self._rules.max_tokens
        if reason := "grammar" if grammar_end else "length" if is_full else "loop" if is_loop else "":
            return self._emit(text + self._flush(), FinishReason(reason))
        self._length += len(text)
        return Delta(text)

    def add(self, token_id: int) -> Delta:
        """Add a token that was not sampled: stop conditions are not checked."""
        assert self.finish is None, "a token after the end"
        self.num_tokens += 1
        return self._emit(self._matcher.skip(self._decoder.push(token_id)))

    def close(self, reason: str) -> Delta:
        """End the sample from outside (context full, time out, interrupt); return the held text."""
        assert self.finish is None, "closed twice"
        return self._emit(self._flush(), FinishReason(reason))

    def _flush(self) -> str:
        # The sample ends for another reason: stop strings are not searched in U+FFFD.
        return self._matcher.push(self._decoder.flush(), armed=False) + self._matcher.flush()

    def _emit(self, text: str, finish: FinishReason | None = None) -> Delta:
        self._length += len(text)
        self.finish = finish
        return Delta(text, finish)


class LoopDetector:
    """Detects that the last tokens are one sequence of 1..MAX_PERIOD tokens, `times` times in a row.

    A token costs MAX_PERIOD comparisons. `times` = 0 switches the detector off.
    """

    def __init__(self, times: int) -> None:
        self._times = times
        self._tokens: list[int] = []  # the last MAX_PERIOD tokens, newest first
        self._runs = [0] * MAX_PERIOD  # by period: how many last tokens equal the token a period before

    def fork(self) -> LoopDetector:
        other = copy.copy(self)
        other._runs = self._runs.copy()
        return other

    def push(self, token_id: int) -> bool:
        """Add a token; return whether it completes a loop."""
        if not self._times:
            return False
        is_loop = False
        for index, earlier in enumerate(self._tokens):
            run = self._runs[index] + 1 if earlier == token_id else 0
            self._runs[index] = run
            # The first occurrence is not counted: it equals nothing before it.
            is_loop = is_loop or run >= (index + 1) * (self._times - 1)
        self._tokens = [token_id, *self._tokens[: MAX_PERIOD - 1]]
        return is_loop


class StopMatcher:
    """Releases text up to the first match.

    `match`, the finish by it, is None until a match is found; then nothing more may be pushed. The released
    text ends before the match, or after it with `include`. Raises UsageError for an empty string, and for a
    pattern that is not valid or matches the empty text.
    """

    def __init__(
        self, strings: Sequence[str] = (), patterns: Sequence[str] = (), include: bool = False
    ) -> None:
        self.match: FinishReason | None = None
        self._include = include
        self._strings, self._patterns = tuple(strings), tuple(patterns)
        self._finders = self._new_finders()
        self._held: deque[tuple[str, bool]] = deque()  # text not yet released, and whether it is hidden
        self._num_held = 0  # characters in _held, hidden ones included
        self._num_read = 0  # characters given to the finders, hidden ones included
        self._num_shown = 0  # characters released, counted only if there are stops

    def fork(self) -> StopMatcher:
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
        if not matches:
            return self._take(self._num_held - max(finder.num_held for finder in self._finders))
        first = min(matches, key=lambda match: match.done)
        shown = self._take(first.start - (self._num_read - self._num_held))
        text = "".join(text for text, _ in self._held)[: first.stop - first.start]
        self.match = FinishReason("stop", text, self._num_shown)
        self._held.clear()
        self._num_held = 0
        return shown + text if self._include else shown

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

    if _num_parts(pattern) > _MAX_PARTS:
        raise UsageError(
            f"The stop pattern {shortened(pattern, 60)!r} repeats too often: written out it has more than "
            f"{_MAX_PARTS:,} parts.",
            hint="Lower the counts in { }.",
        )
    try:
        regex.compile(pattern)  # compiled as given, so that errors show the given pattern
        compiled = regex.compile(_PART.sub(lambda part: _BOUNDARIES.get(part[0], part[0]), pattern))
    except (regex.error, ValueError, OverflowError) as error:  # the last two for huge counts
        raise UsageError(f"The stop pattern {shortened(pattern, 60)!r} is not valid: {error}.") from error
    except RecursionError:
        raise UsageError(f"The stop pattern {shortened(pattern, 60)!r} is nested too deep.") from None
    if compiled.flags & regex.REVERSE:
        raise UsageError(f"The stop pattern {pattern!r} searches backwards, which a stream cannot.")
    try:
        matches_nothing = compiled.search("", timeout=_TIMEOUT)
    except TimeoutError:
        raise UsageError(f"The stop pattern {shortened(pattern, 60)!r} takes over {_TIMEOUT} s.") from None
    if matches_nothing:
        raise UsageError(
            f"The stop pattern {pattern!r} matches the empty text.",
            hint="It would stop before the first token; make it need a character (+ for *).",
        )
    return compiled


def _num_parts(pattern: str) -> int:
    """Return an upper bound of the number of parts of a pattern with its minimum repeats written out.

    `regex` copies a part for each minimum repeat, 280 bytes a copy: `a{99999999}` would take 26 GiB. If
    comments stand between a part and its count, each count is taken for one of the whole pattern.
    """
    if _COMMENTS.search(pattern):
        return len(pattern) * math.prod(_least(atom[1]) for atom in _ATOM.finditer(pattern) if atom[1])
    totals, lasts = [0], [0]  # by open group: number of parts, and number of parts of its last item
    for atom in _ATOM.finditer(pattern):
        if atom[1]:
            more = lasts[-1] * (_least(atom[1]) - 1)
            totals[-1], lasts[-1] = totals[-1] + more, lasts[-1] + more
        elif atom[0] == "(":
            totals.append(1)
            lasts.append(0)
        else:
            size = totals.pop() if (is_end := atom[0] == ")" and len(totals) > 1) else 1
            if is_end:
                lasts.pop()
            totals[-1], lasts[-1] = totals[-1] + size, size
    return sum(totals)


def _least(count: str) -> int:
    return max(1, int(count)) if len(count) < 10 else _MAX_PARTS + 1


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
        # `_from` becomes the first index at which a match may begin, past matches that did not count.
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

    def _slow(self, cost: str) -> GenerationError:
        return GenerationError(
            f"The stop pattern {self._pattern!r} took {cost}.",
            hint="Nested repeats such as (a+)+ and repeated back-references are slow; write it without them.",
        )


class Found(NamedTuple):
    """A match at text[start:stop], found after `done` characters."""

    start: int
    stop: int
    done: int


def check_strings(strings: tuple[str, ...]) -> None:
    """Raise UsageError if a stop string is empty."""
    if "" in strings:
        raise UsageError(
            "A stop string is empty.", hint="It would stop before the first token; leave it out."
        )


class _StringNode:
    """State of the automaton: the longest prefix of a stop string in which the text ends."""

    __slots__ = ("children", "depth", "fallback", "match", "num_held")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.children: dict[str, _StringNode] = {}
        self.fallback: _StringNode | None = None  # of the longest proper suffix that is a prefix too
        self.match = -1  # index of the first listed string that ends here; -1 for none
        self.num_held = 0  # length of the longest suffix that may still grow into a string

    def step(self, char: str) -> _StringNode:
        node = self
        while char not in node.children:
            if node.fallback is None:
                return node
            node = node.fallback
        return node.children[char]


@lru_cache(maxsize=64)
def _automaton(strings: tuple[str, ...]) -> _StringNode:
    """Return the root of the automaton. It is read-only: all requests with these strings share it."""
    root = _StringNode(0)
    for index, string in enumerate(strings):
        node = root
        for depth, char in enumerate(string, 1):
            node = node.children.setdefault(char, _StringNode(depth))
        node.match = index if node.match < 0 else node.match
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for char, child in node.children.items():
            child.fallback = node.fallback.step(char) if node.fallback else root
            matches = [match for match in (child.match, child.fallback.match) if match >= 0]
            child.match = min(matches, default=-1)
            child.num_held = child.depth if child.children else child.fallback.num_held
            queue.append(child)
    return root


class StringFinder:
    """Finds the string that completes first; among strings completing at once, the first listed.

    Takes constant time per character.
    """

    def __init__(self, strings: tuple[str, ...]) -> None:
        check_strings(strings)
        self._strings = strings
        self._node = _automaton(strings)
        self._num_read = 0

    @property
    def num_held(self) -> int:
        """Number of last characters in which a string may have begun."""
        return self._node.num_held

    def feed(self, text: str, *, armed: bool = True) -> Found | None:
        """Read `text`; a string that completes in it is a match only if `armed`."""
        node = self._node
        for position, char in enumerate(text, self._num_read + 1):
            node = node.step(char)
            if armed and node.match >= 0:
                length = len(self._strings[node.match])
                return Found(position - length, position, position)
        self._node = node
        self._num_read += len(text)
        return None
