"""The loop of a batch: submits rows to the engine ahead of time and yields their outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gencli.batch.engines.base import OnTokens, OwnEngine
from gencli.batch.feed import row_request
from gencli.batch.records import Failure, Outcome, Row
from gencli.config.job import Job
from gencli.config.jobs import Jobs
from gencli.config.requests import chat_notices
from gencli.core.events import Error, Event, Finish, PromptScores, Token
from gencli.engine.engine import Engine
from gencli.explain.views import Views, views
from gencli.results.by_token import ByToken, token_ids
from gencli.results.prompt_progress import PromptProgress
from gencli.results.scores import Scores
from gencli.runtime.attempts import RetryingEngine
from gencli.runtime.grammars import Grammars
from gencli.text.tokenizer import Tokenizer

__all__ = ["Ended", "Judge", "Loop", "Tokens"]

Ended = Finish | Error


@dataclass(slots=True)
class Tokens:
    """The tokens of a row: ids of its prompt, and ids, log-probabilities and explanations of its outputs."""

    prompt_ids: tuple[int, ...] = ()
    ids: ByToken[int] = field(default_factory=token_ids)
    scores: Scores = field(default_factory=Scores)
    views: Views = field(default_factory=views)

    def add(self, event: Event) -> None:
        """Add the tokens of an event of the row."""
        self.ids.add(event)
        self.scores.add(event)
        self.views.add(event)


# Makes a row's outcome from its finished samples and their tokens.
Judge = Callable[[Row, Job, Sequence[Ended], Tokens], Outcome]


@dataclass(slots=True)
class _Open:
    """A row in the engine, and the finishes or errors of its samples so far."""

    row: Row
    job: Job
    ends: list[Ended | None]
    num_open: int
    tokens: Tokens


class Loop(OwnEngine):
    """Runs rows on an engine.

    At most `ahead` samples are in the engine at a time, so memory does not grow with the input. A row that
    cannot run has an outcome with the error. `notice` is called with each notice once.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        jobs: Jobs,
        grammars: Grammars,
        judge: Judge,
        *,
        ahead: int,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(engine)
        self._notice, self._noticed = notice, set[str]()
        self._attempts, self._tokenizer = RetryingEngine(engine), tokenizer
        self._jobs, self._grammars, self._judge = jobs, grammars, judge
        self._ahead = ahead
        self._open: dict[str, _Open] = {}
        self._num_samples = 0
        self._prompts = PromptProgress()
        self._deadline: float | None = None
        self._is_draining = False

    @property
    def reading(self) -> str:
        """Prefill progress of long prompts as text; "" if there are none."""
        return self._prompts.text

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called, after which no row starts."""
        return self._deadline is not None

    def stop(self, drain: float = 0.0) -> None:
        """Stop: running rows have `drain` more seconds, no further rows start. Safe in a signal handler."""
        self._deadline = time.monotonic() + drain

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
        """Yield the outcome of each row as it ends. Interrupted rows have none."""
        source = iter(rows)
        yield from self._feed(source)
        while self._open and not self._is_late:
            for event in self._attempts.step():
                self._prompts.add(event)
                on_tokens(len(event.ids) if isinstance(event, Token) else 0)
                yield from self._took(event)
                yield from self._feed(source)
            yield from self._drained()

    def _feed(self, source: Iterator[Row]) -> Iterator[Outcome]:
        """Submit rows until `ahead` samples are in the engine; yield the outcomes of rejected rows."""
        while self._num_samples < self._ahead and not self.is_stopped:
            row = next(source, None)
            if row is None:
                return
            yield from self._submitted(row)

    def _submitted(self, row: Row) -> Iterator[Outcome]:
        job = self._jobs.base
        if row.failure:
            yield self._refused(row, job, row.failure.type, row.failure.message)
            return
        try:
            job = self._jobs.job(row.options, is_chat=bool(row.messages))
            request = row_request(row, self._grammars.ready(job), self._tokenizer)
            for text in chat_notices(job, self._tokenizer):
                self._notice_once(text)
            self._attempts.submit(request, job.structure)
        except Exception as error:  # an error of any kind fails only this row
            failure = Failure.of(error)
            yield self._refused(row, job, failure.type, failure.message)
        else:
            self._open[request.id] = _Open(row, job, [None] * job.n, job.n, Tokens(request.prompt_ids))
            self._num_samples += job.n

    def _notice_once(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    def _refused(self, row: Row, job: Job, kind: str, message: str) -> Outcome:
        name = str(row.record.index)
        ends = [Error(name, sample, kind, message, "") for sample in range(job.n)]
        return self._judge(row, job, ends, Tokens())

    def _took(self, event: Event) -> Iterator[Outcome]:
        if not isinstance(event, Token | PromptScores | Finish | Error):
            return
        entry = self._open[event.request]
        entry.tokens.add(event)
        if not isinstance(event, Finish | Error):
            return
        entry.ends[event.sample] = event
        self._num_samples -= 1
        entry.num_open -= 1
        if entry.num_open:
            return
        ends = [end for end in entry.ends if end is not None]
        del self._open[event.request]
        if not any(isinstance(end, Finish) and end.reason == "interrupted" for end in ends):
            finishes = [end for end in ends if isinstance(end, Finish)]
            # The prompt counts once for all samples: with the counts of the sample that computed most of it.
            copied = min((end.cached_tokens for end in finishes), default=0)
            read = max((end.prompt_tokens for end in finishes), default=0) - copied
            outcome = self._judge(entry.row, entry.job, ends, entry.tokens)
            yield replace(outcome, read=read, copied=copied)

    def _drained(self) -> Iterator[Outcome]:
        """After `stop`: end waiting samples, yield the outcomes of their rows.

        A row may have a million of them. Those left at the deadline are dropped together, with what runs.
        """
        if self._deadline is None or self._is_draining:
            return
        self._is_draining = True
        for event in self._attempts.end_waiting():
            if self._is_late:
                return
            yield from self._took(event)

    @property
    def _is_late(self) -> bool:
        """Whether the time after `stop` is over, so that no row ends any more."""
        return self._deadline is not None and time.monotonic() >= self._deadline
