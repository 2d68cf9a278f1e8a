"""The mutable state of one sample during generation."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field, replace

from gencli.core.events import Drafted, Error, Event, Finish, Reading, Timings, Token
from gencli.core.request import Request
from gencli.errors import GencliError, GenerationError
from gencli.text.stream import Delta, TextStream
from gencli.text.stream import Finish as Reason
from processors.base import Document, GrammarStatus

__all__ = ["Sequence", "Taken", "reading"]

_LONG = 64  # prompt tokens; a longer remaining prefill is reported by Reading events


@dataclass(frozen=True, slots=True)
class Taken:
    """Tokens appended to a sequence; `forced`: under a grammar, whether each was the only legal one."""

    ids: tuple[int, ...]
    forced: tuple[bool, ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request: its state in the engine and its output.

    `num_computed_tokens`: tokens in its KV lane, computed with the rotary factors `rope` (see rope_factors).
    The last committed token is never among them: the next step feeds it.
    `context`: maximum number of prompt and output tokens.
    Times are seconds of a monotonic clock.
    """

    request: Request
    sample: int
    seed: int
    stream: TextStream
    submitted: float
    context: int
    number: int = 0  # order of submission
    slot: int = -1
    num_computed_tokens: int = 0
    rope: int = 0
    num_cached_tokens: int = 0  # prompt tokens whose KV was found in a lane, its own or another
    output: list[int] = field(default_factory=list)
    finish: Reason | None = None
    cut: str = ""  # the limit that was reached, until the text is ended
    document: Document | None = None  # position of the text in its grammar; None without one
    started: float | None = None
    first_token: float | None = None
    logprob: float = 0.0  # sum over `output`, computed for beam search and best-of
    drafted: Drafted | None = None
    _texts: list[str] = field(default_factory=list)
    _emitted: tuple[int, int] = (0, 0)  # number of entries of `output` and `_texts` in events so far

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return self.request.prompt_ids

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def tokens(self, start: int = 0, end: int | None = None) -> tuple[int, ...]:
        """Tokens `start` to `end` of prompt and output."""
        size = len(self.prompt)
        end = len(self) if end is None else end
        return (*self.prompt[start:end], *self.output[max(0, start - size) : max(0, end - size)])

    def fork(self) -> Sequence:
        """Return an independent copy."""
        return replace(self, stream=self.stream.fork(), output=self.output.copy(), _texts=self._texts.copy())

    def take(
        self, tokens: Tokens[int], followed: Tokens[GrammarStatus] = (), *, now: float
    ) -> tuple[Taken, Exception | None]:
        """Append tokens up to the one that ends the text; return the appended ones and the error, if any.

        `followed`: status of the grammar after each token.
        """
        before, error = len(self.output), None
        for i, token in enumerate(tokens):
            self.output.append(token)
            try:
                self._push(token, followed[i] if followed else None)
            except GencliError as raised:  # a stop pattern that takes too long
                error = raised
                break
            if self.finish is None:
                self.cut = self._reached()
            if self.finish is not None or self.cut:
                break
        if self.first_token is None and self.output:
            self.first_token = now
        ids = tuple(self.output[before:])
        return Taken(ids, tuple(entry.forced for entry in followed[: len(ids)])), error

    def _reached(self) -> str:
        """Name of the limit that the text has reached; "" if none."""
        if len(self) >= self.context:
            return "context"
        return "max_tokens" if len(self.output) >= self.request.limits.max_tokens else ""

    def end_cut(self, closing: Tokens[int], cut: str | None = None) -> None:
        """End a text at a limit; `closing` are tokens that complete its document, or none."""
        for token in closing:
            self.output.append(token)
            self._add(self.stream.add(token))
        if closing:
            self.document = "complete"
        self.close("closed" if closing else "length", cut or self.cut)

    def _push(self, token: int, followed: GrammarStatus | None) -> None:
        if followed is None:
            self._add(self.stream.push(token))
            return
        is_inside = self.document in (None, "free", "open")
        self.document = followed.document
        if followed.document == "broken":
            raise GenerationError(f"Token {token} was chosen, which the grammar does not allow here.")
        self._add(self.stream.push(token, in_document=is_inside, grammar_end=followed.document == "over"))

    def close(self, reason: str, matched: str | None = None) -> None:
        """End the text for an external reason, and emit text that the stop rules held back."""
        self._add(self.stream.close(reason))
        self.finish = Reason(reason, matched)

    def _add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self.finish = delta.finish
        if self.finish is not None and self.finish.reason == "length":
            self.finish = Reason("length", "max_tokens")

    def restart(self, stream: TextStream) -> None:
        """Reset to the prompt, without a slot. Text that is generated again is not emitted again."""
        self.stream, self.slot, self.num_computed_tokens, self.num_cached_tokens = stream, -1, 0, 0
        self.output, self._texts, self.logprob = [], [], 0.0
        self.finish, self.cut, self.document = None, "", None

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        """Return the events since the last call."""
        ids, text = tuple(self.output[self._emitted[0] :]), "".join(self._texts[self._emitted[1] :])
        self._emitted = max(self._emitted[0], len(self.output)), max(self._emitted[1], len(self._texts))
        events: list[Event] = [Token(self.request.id, self.sample, text, ids)] if ids or text else []
        if error is not None:
            events.append(self._failed(error))
        elif self.finish is not None:
            events.append(self._finished(self.finish, now))
        return events

    def _failed(self, error: Exception) -> Error:
        text = "".join(self._texts)
        return Error(self.request.id, self.sample, type(error).__name__, str(error), text)

    def _finished(self, finish: Reason, now: float) -> Finish:
        started = self.submitted if self.started is None else self.started
        first = now if self.first_token is None else self.first_token
        return Finish(
            request=self.request.id,
            sample=self.sample,
            text="".join(self._texts),
            reason=finish.reason,
            matched=finish.matched,
            offset=finish.offset,
            prompt_tokens=len(self.prompt),
            completion_tokens=len(self.output),
            timings=Timings(prefill=first - started, decode=now - first, first_token=first - self.submitted),
            cached_tokens=self.num_cached_tokens,
            document=self.document,
            logprob=self.logprob,
            drafted=self.drafted,
        )


def reading(sequences: Iterable[Sequence]) -> list[Event]:
    """Return the prefill progress of sequences with more than 64 prompt tokens left."""
    return [
        Reading(sequence.request.id, sequence.sample, sequence.num_computed_tokens, len(sequence.prompt))
        for sequence in sequences
        if len(sequence.prompt) - sequence.num_computed_tokens > _LONG
    ]
