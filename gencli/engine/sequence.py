"""The one mutable record of a sample that is being generated."""

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

_LONG = 64  # tokens of a prompt of which it is told that they are read


@dataclass(frozen=True, slots=True)
class Taken:
    """Tokens that became part of a text, and, under a grammar, which of them were the only choice."""

    ids: tuple[int, ...]
    forced: tuple[bool, ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request: its place in the engine and what it has produced.

    `fed` counts the tokens that its KV lane holds; the last committed token is always still to be fed. They
    were read with the rotary factors `rope` (see rope_factors).
    `context` is the most tokens that prompt and output may have.
    Times are seconds of a monotonic clock.
    """

    request: Request
    sample: int
    seed: int
    stream: TextStream
    submitted: float
    context: int
    number: int = 0  # in the order of submission
    slot: int = -1
    fed: int = 0
    rope: int = 0
    cached: int = 0  # tokens of the prompt that were found in a lane, its own or another
    output: list[int] = field(default_factory=list)
    finish: Reason | None = None
    cut: str = ""  # the limit that was reached, while it is open how the text ends
    document: Document | None = None  # where the text stands in its grammar; None without one
    started: float | None = None
    first_token: float | None = None
    logprob: float = 0.0  # the sum over `output`, where a search or a choice among samples asks for it
    drafted: Drafted | None = None
    _texts: list[str] = field(default_factory=list)
    _given: tuple[int, int] = (0, 0)  # how many of `output` and `_texts` events have told of

    @property
    def prompt(self) -> tuple[int, ...]:
        """Ids of the prompt."""
        return self.request.prompt_ids

    def __len__(self) -> int:
        return len(self.prompt) + len(self.output)

    def tokens(self, start: int = 0, end: int | None = None) -> tuple[int, ...]:
        """Prompt and output from one place to another."""
        size = len(self.prompt)
        end = len(self) if end is None else end
        return (*self.prompt[start:end], *self.output[max(0, start - size) : max(0, end - size)])

    def fork(self) -> Sequence:
        """An independent copy, which goes on from here."""
        return replace(self, stream=self.stream.fork(), output=self.output.copy(), _texts=self._texts.copy())

    def take(
        self, tokens: Tokens[int], followed: Tokens[GrammarStatus] = (), *, now: float
    ) -> tuple[Taken, Exception | None]:
        """Append tokens up to the one that ends the text; returns those taken, and what went wrong.

        `followed` says where a grammar stands after each of them.
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
        """The limit that ends the text here, if its own rules have not."""
        if len(self) >= self.context:
            return "context"
        return "max_tokens" if len(self.output) >= self.request.limits.max_tokens else ""

    def end_cut(self, closing: Tokens[int], cut: str | None = None) -> None:
        """End a text that a limit cuts, with the tokens that complete its document, if there are any."""
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
        """End the text from outside; what was held back is given."""
        self._add(self.stream.close(reason))
        self.finish = Reason(reason, matched)

    def _add(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self.finish = delta.finish
        if self.finish is not None and self.finish.reason == "length":
            self.finish = Reason("length", "max_tokens")

    def restart(self, stream: TextStream) -> None:
        """Back to the prompt, without a slot. What events have told of will be made again, not told again."""
        self.stream, self.slot, self.fed, self.cached = stream, -1, 0, 0
        self.output, self._texts, self.logprob = [], [], 0.0
        self.finish, self.cut, self.document = None, "", None

    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        """Events for all that has happened since the last call."""
        ids, text = tuple(self.output[self._given[0] :]), "".join(self._texts[self._given[1] :])
        self._given = max(self._given[0], len(self.output)), max(self._given[1], len(self._texts))
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
            cached_tokens=self.cached,
            document=self.document,
            logprob=self.logprob,
            drafted=self.drafted,
        )


def reading(sequences: Iterable[Sequence]) -> list[Event]:
    """How far each of these is with its prompt, as long as much of that is to be read yet."""
    return [
        Reading(sequence.request.id, sequence.sample, sequence.fed, len(sequence.prompt))
        for sequence in sequences
        if len(sequence.prompt) - sequence.fed > _LONG
    ]
