"""Engines that run the rows of a batch: the loop over the model of this process, or workers of Ray that
each hold the model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from gencli import __version__
from gencli.batch.batch_records import Failure, OnTokens, Outcome, OwnEngine, Row, RowEngine
from gencli.batch.batch_rows import kept_columns, row_jobs
from gencli.batch.batch_setup import Batch, row_request
from gencli.batch.journal import row_trace
from gencli.batch.ray_workers import connected, fair_share
from gencli.config.job import Job, Jobs, chat_notices
from gencli.config.settings import FLAG, Layer, Settings, resolve
from gencli.core.events import Error, Event, Finish, PromptScores, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError, UsageError
from gencli.explain.token_record import Views, views
from gencli.helpers import once
from gencli.models.files.checkpoint import ModelIdentity
from gencli.plugins.plugin_registry import make_registry
from gencli.results import run_results as results
from gencli.results.run_record import RunInfo, record
from gencli.results.run_results import ByToken, PromptProgress, Scores, token_ids
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.machine import quiet_libraries
from gencli.runtime.model_loading import Recorder, Reporter
from gencli.runtime.wiring import load_model, make_engine, model_identity
from gencli.text.tokenizer import Tokenizer
from gencli.watermark_keys import NamedKey
from processors.chain import Chain

_AHEAD = 4  # samples in the engine, as a multiple of those that run at once


@contextmanager
def open_loop(
    jobs: Jobs, settings: Settings, *, is_chat: bool, are_guided: bool, keep_input: bool, reporter: Reporter
) -> Iterator[Loop]:
    """Load the model; the context's value is the loop that runs rows on it.

    `is_chat`: all rows need the chat template. `are_guided`: some rows may be guided.
    """
    rows = settings["max_batch"] * jobs.base.rows_each
    loaded, _ = load_model(settings, reporter, companions=are_guided, rows=max(2, rows), is_chat=is_chat)
    with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        grammars = Grammars(compiler)
        identity = model_identity(settings, reporter)
        judge = _make_judge(
            engine, settings["model"], identity, grammars, loaded.tokenizer, keep_input=keep_input
        )
        ahead = _AHEAD * engine.limit
        yield Loop(engine, loaded.tokenizer, jobs, grammars, judge, ahead=ahead, notice=reporter.notice)


def _make_judge(
    engine: Engine,
    model: str,
    identity: ModelIdentity | None,
    grammars: Grammars,
    tokenizer: Tokenizer,
    *,
    keep_input: bool,
) -> Judge:
    """Return the function that makes a row's outcome from its finished samples."""

    @lru_cache(maxsize=1024)
    def effective(chain: Chain, is_greedy: bool) -> Chain:
        return engine.effective(Request("", (), chain, draw="greedy" if is_greedy else "gumbel")).chain

    def judge(row: Row, job: Job, ends: Sequence[Ended], tokens: Tokens) -> Outcome:
        compiled = None
        with suppress(ConfigError):  # the row has failed with this error, which `ends` contains
            compiled = grammars.compiled(job)
        if compiled is not None:
            job = job.on(compiled.variant.constraint)
        is_partial = job.structure is None or job.structure.is_partial
        texts = [end.text for end in ends]
        line = results.Row(
            row.id,
            row.prompt or "",
            texts,
            list(ends),
            is_partial,
            scores=tokens.scores,
            ids=tokens.ids,
            prompt_ids=tokens.prompt_ids,
        )
        chain = effective(job.assembly.chain, job.is_greedy)
        info = RunInfo(model, chain, job, compiled, identity, tokenizer, engine.eos_ids)
        result = {**record(line, info), **_of_input(row, keep_input=keep_input)}
        is_error = any(results.failure(end) is not None for end in ends)
        trace = row_trace(row, info, ends, tokens.views, tokens.prompt_ids)
        return Outcome(row.record.index, row.id, result, is_error, trace=trace)

    return judge


def _of_input(row: Row, *, keep_input: bool) -> Mapping[str, Any]:
    """Return the fields of a result copied from the row: prompt, messages, kept columns."""
    fields: dict[str, Any] = {"prompt": row.prompt}
    if row.messages:
        fields["messages"] = list(row.messages)
    if keep_input:
        fields["input"] = kept_columns(row)
    return fields


_WORKERS = 2


@dataclass(frozen=True, slots=True)
class _Orders:
    """Settings with which a worker runs rows as this process would."""

    version: str
    folder: str
    layers: tuple[Layer, ...]
    is_chat: bool
    keep_input: bool
    are_guided: bool
    named_keys: tuple[tuple[str, str], ...]  # names and files of watermark keys, which each worker reads


@contextmanager
def open_pool(batch: Batch, reporter: Reporter, *, is_chat: bool) -> Iterator[RowEngine]:
    """Start workers and load their models; the context's value is their pool.

    Raises UsageError if Ray has too few resources for the workers.
    """
    plan, settings = batch.plan, batch.settings
    workers = plan["workers"] or _WORKERS
    # A random seed is chosen once, for all workers.
    layers = (*settings.layers, Layer.of(FLAG, {"seed": batch.jobs.base.seed}))
    orders = _Orders(
        __version__,
        os.getcwd(),
        layers,
        is_chat,
        plan["keep_input"],
        batch.jobs.are_guided,
        plan["named_key"],
    )
    with connected() as (address, resources):
        share = fair_share(
            resources, workers, plan["worker_cpus"], plan["worker_gpus"], is_cpu=settings["device"] == "cpu"
        )
        reporter.notice(f"Ray on {address} runs {workers} workers, each with {share}.")
        from gencli.batch.ray_pool import Pool

        window = 2 * settings["max_batch"]  # as many rows wait as run
        pool = Pool(partial(_open, orders), workers=workers, share=share, window=window)
        pool.wait()
        yield pool


@contextmanager
def _open(orders: _Orders) -> Iterator[RowEngine]:
    """Load the model in a worker; the context's value is the loop that runs rows on it."""
    if orders.version != __version__:
        raise UsageError(
            f"A worker has gencli {__version__}, but the batch was started with {orders.version}.",
            hint="Install the same version on every node.",
        )
    with suppress(OSError):  # a relative path of the driver may not exist on the node
        os.chdir(orders.folder)
    with quiet_libraries():
        plugins = resolve(*orders.layers)["plugin"]
        settings = resolve(*orders.layers, registry=make_registry(plugins))
        reporter = Recorder()
        with open_loop(
            row_jobs(settings, NamedKey.read_all(orders.named_keys)),
            settings,
            is_chat=orders.is_chat,
            are_guided=orders.are_guided,
            keep_input=orders.keep_input,
            reporter=reporter,
        ) as loop:
            loop.notices.extend(reporter.lines)
            yield loop


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
class _OpenRow:
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
        self._notice = once(notice)
        self._attempts, self._tokenizer = RetryingEngine(engine), tokenizer
        self._jobs, self._grammars, self._judge = jobs, grammars, judge
        self._ahead = ahead
        self._open: dict[str, _OpenRow] = {}
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
                self._notice(text)
            self._attempts.submit(request, job.structure)
        except Exception as error:  # an error of any kind fails only this row
            failure = Failure.of(error)
            yield self._refused(row, job, failure.type, failure.message)
        else:
            self._open[request.id] = _OpenRow(row, job, [None] * job.n, job.n, Tokens(request.prompt_ids))
            self._num_samples += job.n

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
