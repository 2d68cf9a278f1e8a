"""The text of one sample: tokens in, text out, and the reason it ends."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from gencli.errors import UsageError
from gencli.text.automaton import check_strings
from gencli.text.detok import TokenDecoder
from gencli.text.loops import LoopDetector
from gencli.text.patterns import check_pattern
from gencli.text.stops import StopMatcher

__all__ = ["Delta", "Finish", "StopRules", "TextStream"]


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a sample ends.

    `strings` and `patterns` (regular expressions) are looked for in the output; a match counts if it
    completes after the first `min_tokens` tokens. `include_stop` keeps what stopped in the text.
    `ignore_eos` makes EOS ids ordinary. `loop` = N > 1 ends a sample whose last tokens are one pattern
    of up to 64 tokens, N times in a row; 0 is off. Raises UsageError for rules that cannot hold.
    """

    eos_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    strings: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    include_stop: bool = False
    min_tokens: int = 0
    max_tokens: int = 512
    ignore_eos: bool = False
    loop: int = 0

    def __post_init__(self) -> None:
        check_strings(self.strings)
        for pattern in self.patterns:
            check_pattern(pattern)
        if self.loop < 0 or self.loop == 1:
            raise UsageError(f"loop is {self.loop}, but has to be 0 (off) or at least 2 repetitions.")


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a sample ended: eos, stop, length, closed, grammar, loop, interrupted or error.

    closed: a limit was reached in an open document, which was then completed. `matched` is the stop
    string, the text a pattern matched, the stop or EOS id, or the limit; `offset` is the
    number of characters of output before it.
    """

    reason: str
    matched: str | int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that became certain, and the finish if this is the last of it."""

    text: str
    finish: Finish | None = None


class TextStream:
    """Turns the tokens of one sample into deltas; joined they are its final text."""

    def __init__(self, decoder: TokenDecoder, rules: StopRules) -> None:
        self.finish: Finish | None = None
        self.num_tokens = 0
        self._decoder = decoder
        self._rules = rules
        self._matcher = StopMatcher(rules.strings, rules.patterns, rules.include_stop)
        self._loops = LoopDetector(rules.loop)
        self._length = 0  # characters given out

    def fork(self) -> TextStream:
        """An independent copy, which goes on from here."""
        other = copy.copy(self)
        other._decoder, other._matcher = self._decoder.fork(), self._matcher.fork()
        other._loops = self._loops.fork()
        return other

    def push(self, token_id: int, *, in_document: bool = False, grammar_end: bool = False) -> Delta:
        """Add a generated token.

        Checked in this order: EOS, stop id, stop string or pattern, end of the grammar (`grammar_end`:
        this token completed it), length, loop. `in_document` says that the token belongs to a document
        a grammar has not finished, in which no stop string begins or ends.
        """
        assert self.finish is None, "a token behind the end"
        self.num_tokens += 1
        if reason := self._id_reason(token_id):
            return self._end_with_id(token_id, reason)
        if in_document:
            text = self._matcher.skip(self._decoder.push(token_id))
        else:
            text = self._search(token_id, armed=self.num_tokens > self._rules.min_tokens)
        if match := self._matcher.match:
            return self._emit(text, Finish("stop", match.text, match.offset))
        reason = self._count_reason(token_id, grammar_end)
        return self._emit(text + self._flush(), Finish(reason)) if reason else self._emit(text)

    def add(self, token_id: int) -> Delta:
        """Add a token that nobody chose: nothing is looked for in it, and nothing ends."""
        assert self.finish is None, "a token behind the end"
        self.num_tokens += 1
        return self._emit(self._matcher.skip(self._decoder.push(token_id)))

    def close(self, reason: str) -> Delta:
        """End the sample from outside (context full, time out, interrupt): give what was held."""
        assert self.finish is None, "closed twice"
        return self._emit(self._flush(), Finish(reason))

    def _id_reason(self, token_id: int) -> str:
        if token_id in self._rules.eos_ids and not self._rules.ignore_eos:
            return "eos"
        return "stop" if token_id in self._rules.stop_ids else ""

    def _end_with_id(self, token_id: int, reason: str) -> Delta:
        shown = ""
        if self._rules.include_stop and not (shown := self._decoder.hidden(token_id)):
            # Ordinary text: it may complete the character before it, so it goes through the decoder.
            text = self._matcher.flush()
            shown = self._decoder.push(token_id) + self._decoder.flush()
        else:
            text = self._flush()
        return self._emit(text + shown, Finish(reason, token_id, self._length + len(text)))

    def _count_reason(self, token_id: int, grammar_end: bool) -> str:
        looping = self._loops.push(token_id)
        if grammar_end:
            return "grammar"
        if self.num_tokens >= self._rules.max_tokens:
            return "length"
        return "loop" if looping else ""

    def _search(self, token_id: int, *, armed: bool) -> str:
        text = self._matcher.push(self._decoder.push(token_id), armed=armed)
        if self._matcher.match is None and (name := self._decoder.hidden(token_id)):
            text += self._matcher.push(name, hidden=True, armed=armed)
        return text

    def _flush(self) -> str:
        # No match any more: the sample ends for another reason, and stops do not look at U+FFFD.
        return self._matcher.push(self._decoder.flush(), armed=False) + self._matcher.flush()

    def _emit(self, text: str, finish: Finish | None = None) -> Delta:
        self._length += len(text)
        self.finish = finish
        return Delta(text, finish)
