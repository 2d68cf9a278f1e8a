"""Engines that run the rows of a batch: the loop over the model of this process, or workers of Ray that
each hold the model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from gencli import __version__
from gencli.batch.batch_records import Failure, OnTokens, Outcome, OwnEngine, Row, RowEngine
from gencli.batch.batch_rows import row_jobs
from gencli.batch.batch_setup import Batch, job_of, row_request
from gencli.batch.journal import row_trace
from gencli.batch.ray_workers import connected, fair_share
from gencli.config.job import Job, Jobs, chat_notices
from gencli.config.settings import FLAG, Settings, SettingsLayer, resolve
from gencli.core.events import Error, Event, Finish, PromptScores, Token
from gencli.core.request import Request
from gencli.engine.engine import Engine
from gencli.errors import ConfigError, UsageError
from gencli.explain.token_record import Views, views
from gencli.helpers import counted, once
from gencli.plugins.plugin_registry import make_registry
from gencli.results.run_record import RunInfo, record
from gencli.results.run_results import PromptProgress, PromptRow, failure
from gencli.runtime.compiled_grammars import Grammars, RetryingEngine, grammar_env, make_compiler
from gencli.runtime.machine import quiet_libraries
from gencli.runtime.model_loading import Reporter, StoringReporter
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
        identity, tokenizer = model_identity(settings, reporter), loaded.tokenizer

        @lru_cache(maxsize=1024)
        def effective(chain: Chain, is_greedy: bool) -> Chain:
            return engine.effective(Request("", (), chain, draw="greedy" if is_greedy else "gumbel")).chain

        def judge(entry: OpenRow) -> Outcome:
            row, job, line, compiled = entry.row, entry.job, entry.line, None
            with suppress(ConfigError):  # the row has failed with this error, which its outcomes contain
                compiled = grammars.compiled(job)
            if compiled is not None:
                job = job.on(compiled.variant.constraint)
            line.is_partial = job.structure is None or job.structure.is_partial
            chain = effective(job.assembly.chain, job.is_greedy)
            info = RunInfo(settings["model"], chain, job, compiled, identity, tokenizer, engine.eos_ids)
            result = {**record(line, info), "prompt": row.prompt}
            if row.messages:
                result["messages"] = list(row.messages)
            if keep_input:
                result["input"] = dict(row.record.columns)
            is_error = any(failure(end) is not None for end in line.ended)
            trace = row_trace(row, info, line.ended, entry.views, line.prompt_ids)
            return Outcome(row.record.index, row.id, result, is_error, trace=trace)

        ahead = _AHEAD * engine.limit
        yield Loop(engine, tokenizer, jobs, grammars, judge, ahead=ahead, notice=reporter.notice)


_WORKERS = 2


@contextmanager
def open_pool(batch: Batch, reporter: Reporter, *, is_chat: bool) -> Iterator[RowEngine]:
    """Start workers and load their models; the context's value is their pool.

    Raises UsageError if Ray has too few resources for the workers.
    """
    plan, settings = batch.plan, batch.settings
    workers = plan["workers"] or _WORKERS
    # A random seed is chosen once, for all workers.
    layers = (*settings.layers, SettingsLayer.of(FLAG, {"seed": batch.jobs.base.seed}))
    options = {"is_chat": is_chat, "are_guided": batch.jobs.are_guided, "keep_input": plan["keep_input"]}
    open_engine = partial(_open, __version__, os.getcwd(), layers, plan["named_key"], **options)
    with connected() as (address, resources):
        share = fair_share(
            resources, workers, plan["worker_cpus"], plan["worker_gpus"], is_cpu=settings["device"] == "cpu"
        )
        reporter.notice(f"Ray on {address} runs {counted(workers, 'worker')}, each with {share}.")
        from gencli.batch.ray_pool import Pool

        window = 2 * settings["max_batch"]  # as many rows wait as run
        pool = Pool(open_engine, workers=workers, share=share, window=window)
        pool.wait()
        yield pool


@contextmanager
def _open(
    version: str,
    folder: str,
    layers: Sequence[SettingsLayer],
    keys: Sequence[tuple[str, str]],
    **options: bool,
) -> Iterator[RowEngine]:
    """Load the model in a worker; the context's value is the loop that runs rows on it.

    `keys`: names and files of watermark keys, which each worker reads.
    """
    if version != __version__:
        raise UsageError(
            f"A worker has gencli {__version__}, but the batch was started with {version}.",
            hint="Install the same version on every node.",
        )
    with suppress(OSError):  # a relative path of the driver may not exist on the node
        os.chdir(folder)
    with quiet_libraries():
        settings = resolve(*layers, registry=make_registry(resolve(*layers)["plugin"]))
        jobs, reporter = row_jobs(settings, NamedKey.read_all(keys)), StoringReporter()
        with open_loop(jobs, settings, reporter=reporter, **options) as loop:
            loop.notices.extend(reporter.lines)
            yield loop


@dataclass(slots=True)
class OpenRow:
    """A row in the engine: its samples and their tokens so far, and explanations of the tokens."""

    row: Row
    job: Job
    line: PromptRow
    views: Views = field(default_factory=views)

    @classmethod
    def of(cls, row: Row, job: Job, prompt_ids: tuple[int, ...] = ()) -> OpenRow:
        return cls(row, job, PromptRow(row.id, row.prompt or "", job.n, prompt_ids=prompt_ids))

    def add(self, event: Event) -> None:
        """Add an event of the row."""
        self.line.add(event)
        self.views.add(event)


Judge = Callable[[OpenRow], Outcome]  # makes the outcome of a row whose samples have ended


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
        self._open: dict[str, OpenRow] = {}
        self._num_samples = 0
        self._prompts = PromptProgress()
        self._deadline: float | None = None
        self._is_draining = False

    @property
    def reading(self) -> str:
        return self._prompts.text

    @property
    def is_stopped(self) -> bool:
        return self._deadline is not None

    def stop(self, drain: float = 0.0) -> None:
        self._deadline = time.monotonic() + drain

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
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
            job, fault = self._jobs.base, row.failure
            try:
                if not fault:
                    job = job_of(row, self._jobs)
                    self._submit(row, job)
            except Exception as error:  # an error of any kind fails only this row
                fault = Failure.of(error)
            if fault:
                entry = OpenRow.of(row, job)
                for sample in range(job.n):
                    entry.add(Error(str(row.record.index), sample, fault.type, fault.message, ""))
                yield self._judge(entry)

    def _submit(self, row: Row, job: Job) -> None:
        request = row_request(row, self._grammars.ready(job), self._tokenizer)
        for text in chat_notices(job, self._tokenizer):
            self._notice(text)
        self._attempts.submit(request, job.structure)
        self._open[request.id] = OpenRow.of(row, job, request.prompt_ids)
        self._num_samples += job.n

    def _took(self, event: Event) -> Iterator[Outcome]:
        if not isinstance(event, Token | PromptScores | Finish | Error):
            return
        entry = self._open[event.request]
        entry.add(event)
        if not isinstance(event, Finish | Error):
            return
        self._num_samples -= 1
        if not entry.line.is_done:
            return
        del self._open[event.request]
        finishes = entry.line.finishes
        if not any(end.reason == "interrupted" for end in finishes):
            # The prompt counts once for all samples: with the counts of the sample that computed most of it.
            copied = min((end.cached_tokens for end in finishes), default=0)
            read = max((end.prompt_tokens for end in finishes), default=0) - copied
            yield replace(self._judge(entry), read=read, copied=copied)

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
        return self._deadline is not None and time.monotonic() >= self._deadline
