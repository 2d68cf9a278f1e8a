"""The output text of one sample: tokens in, text out, and the finish reason."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

from gencli.core.request import Stops
from gencli.errors import UsageError
from gencli.text.automaton import check_strings
from gencli.text.detok import TokenDecoder
from gencli.text.patterns import check_pattern
from gencli.text.stops import StopMatcher

__all__ = ["MAX_PERIOD", "Delta", "Finish", "LoopDetector", "StopRules", "TextStream"]

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
class Finish:
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
    finish: Finish | None = None


class TextStream:
    """Turns the tokens of one sample into deltas; their joined texts are the final text."""

    def __init__(self, decoder: TokenDecoder, rules: StopRules) -> None:
        self.finish: Finish | None = None
        self.num_tokens = 0
        self._decoder = decoder
        self._rules, stops = rules, rules.stops
        self._matcher = StopMatcher(stops.strings, stops.patterns, stops.include)
        self._loops = LoopDetector(stops.loop)
        self._searches, self._detects = bool(stops.strings or stops.patterns), bool(stops.loop)
        self._ends = frozenset(stops.ids) if rules.ignore_eos else rules.eos_ids | frozenset(stops.ids)
        self._length = 0  # characters released so far

    def fork(self) -> TextStream:
        """Return an independent copy."""
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
            is_eos = token_id in self._rules.eos_ids and not self._rules.ignore_eos
            return self._end_with_id(token_id, "eos" if is_eos else "stop")
        if not self._searches:
            text = self._decoder.push(token_id)
        elif in_document:
            text = self._matcher.skip(self._decoder.push(token_id))
        else:
            text = self._search(token_id, armed=self.num_tokens > self._rules.min_tokens)
        if match := self._matcher.match:
            return self._emit(text, Finish("stop", match.text, match.offset))
        if reason := self._count_reason(token_id, grammar_end):
            return self._emit(text + self._flush(), Finish(reason))
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
        return self._emit(self._flush(), Finish(reason))

    def _end_with_id(self, token_id: int, reason: str) -> Delta:
        shown = ""
        if self._rules.stops.include and not (shown := self._decoder.hidden(token_id)):
            # Regular text: it may complete the character before it, so it goes through the decoder.
            text = self._matcher.flush()
            shown = self._decoder.push(token_id) + self._decoder.flush()
        else:
            text = self._flush()
        return self._emit(text + shown, Finish(reason, token_id, self._length + len(text)))

    def _count_reason(self, token_id: int, grammar_end: bool) -> str:
        is_loop = self._detects and self._loops.push(token_id)
        if grammar_end:
            return "grammar"
        if self.num_tokens >= self._rules.max_tokens:
            return "length"
        return "loop" if is_loop else ""

    def _search(self, token_id: int, *, armed: bool) -> str:
        text = self._matcher.push(self._decoder.push(token_id), armed=armed)
        if self._matcher.match is None and (name := self._decoder.hidden(token_id)):
            text += self._matcher.push(name, hidden=True, armed=armed)
        return text

    def _flush(self) -> str:
        # The sample ends for another reason: stop strings are not searched in U+FFFD.
        return self._matcher.push(self._decoder.flush(), armed=False) + self._matcher.flush()

    def _emit(self, text: str, finish: Finish | None = None) -> Delta:
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
        """Return an independent copy."""
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
