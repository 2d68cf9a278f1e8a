"""Runs a batch: reads and checks rows, generates, keeps a journal, writes output and summary."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gencli.batch.batch_records import BatchReporter, BatchSummary, Outcome, Progress, Record, Row, RowEngine
from gencli.batch.batch_rows import RowOptions, Survey, make_rows
from gencli.batch.batch_setup import Batch, begun_with, plan_rows
from gencli.batch.journal import Journal, Places, TraceFile, company, opened_trace, refuse_old_trace
from gencli.batch.output_formats import OUTPUT_FORMATS
from gencli.batch.row_engines import open_loop, open_pool
from gencli.batch.table_columns import IDS, SCORES, RowWriter, Table, TextTarget, generated
from gencli.config.job import Jobs
from gencli.config.settings import SettingsLayer, resolve
from gencli.errors import UsageError
from gencli.files import locked, replaced
from gencli.helpers import counted, size
from gencli.json_text import to_json
from gencli.plugins.plugin_registry import plugin_notices

_MESSAGES = 20  # limit of error messages in the summary
_EXIT = {"interrupted": 130, "stopped": 7}


@dataclass(frozen=True, slots=True)
class _Run:
    """The values used by all steps of a run. `stdout` receives results that go to no file."""

    batch: Batch
    survey: Survey
    reporter: BatchReporter
    stdout: TextTarget


def run_batch(batch: Batch, reporter: BatchReporter, stdout: TextTarget) -> int:
    """Run the batch; return the exit code: 0, 7 if rows failed, 130 if interrupted.

    Raises UsageError for an input in which no row can run, or with more faults than allowed failures.
    """
    places = batch.places
    with ExitStack() as stack:
        if places is not None:
            hint = "Wait until it has ended, or name another `output`."
            stack.enter_context(locked(places.output, hint=hint))
            if not places.claim(batch.plan):
                reporter.say(f"{places.output} is complete: there is nothing to resume.")
                return 0
        refuse_old_trace(batch.settings["trace"], batch.plan, places)
        survey = _survey(batch, reporter)
        run = _Run(_sized(batch, reporter), survey, reporter, stdout)
        return _streamed(run) if places is None else _journalled(run, places)


def _survey(batch: Batch, reporter: BatchReporter) -> Survey:
    """Read all rows. Raises UsageError if no row can run, or for more faults than allowed."""
    faults: dict[bool, str] = {}  # the first fault, and the first one of column names

    def note(row: Row) -> None:
        if row.failure:
            fault = f"{row.record.place}: {row.failure.message}"
            faults.setdefault(False, fault)
            faults.setdefault(row.failure.is_of_columns, fault)

    survey = batch.survey(note)
    if survey.num_read and survey.num_misnamed == survey.num_read:
        raise UsageError(f"No row of the input can run. {faults[True]}")
    allowed = batch.plan.max_errors
    if allowed is not None and survey.num_faults > allowed:
        rows = counted(survey.num_faults, "row of the input is", "rows of the input are")
        raise UsageError(
            f"{rows} faulty, and {allowed} may fail. {faults[False]}",
            hint="`dry_run` lists them all.",
        )
    jobs = batch.jobs
    names = () if survey.num_chats or survey.num_faults == survey.num_rows else jobs.base.untold_tools
    if names and not any(name in (row.prompt or "") for row in batch.rows() for name in names):
        raise UsageError(
            f"{batch.settings.name('tools')} reaches the model in the chat template, which no row uses, and "
            "no prompt names a tool: the model would not know them.",
            hint="Add `chat`, or name the tools in the prompts.",
        )
    if batch.keys and "watermark_key" not in survey.options:
        reporter.notice("No row that can run has watermark_key, so the keys of `named_key` are not used.")
    for text in plugin_notices(jobs.stages, jobs.base.registry, drafters=jobs.drafters):
        reporter.notice(text)
    return survey


def _sized(batch: Batch, reporter: BatchReporter) -> Batch:
    """Return the batch with the planned number of samples at once, if planning is requested.

    A resumed run keeps its former number if another one might change texts.
    """
    if batch.plan["max_batch"] != "auto" and batch.plan["kv_memory"] is None:
        return batch
    number = begun_with("`max_batch`", batch.plan, batch.places)
    if number is None or batch.is_free:
        plan = plan_rows(batch)
        each = f", {size(plan.kv_bytes)} of keys and values each" if plan.kv_bytes else ""
        samples = counted(plan.max_batch, "sample runs at a time", "samples run side by side")
        reporter.notice(f"{samples}{each}.")
        number = plan.max_batch
    settings = batch.settings
    layers = *settings.layers, SettingsLayer.of("planned", {"max_batch": number})
    return replace(batch, settings=resolve(*layers, registry=settings.registry))


def _streamed(run: _Run) -> int:
    """Run with results on a stream, which has no journal: each result is written in order."""
    batch, plan = run.batch, run.batch.plan
    progress = Progress(run.survey.num_rows)
    with (
        opened_trace(batch.settings["trace"]) as trace,
        batch.output.open(batch.work.table(batch, run.survey), stdout=run.stdout) as writer,
    ):
        store = StreamStore(_noting(writer, batch), by_row=plan["order"] == "input", trace=trace)
        end = _generated(run, store.pending, store.add, progress)
        store.close()
    return _finished(run, progress, end)


def _journalled(run: _Run, places: Places) -> int:
    """Run with a journal: results are kept there until all are complete, then the output is written."""
    batch, plan = run.batch, run.batch.plan
    with run.reporter.loading(batch.settings["model"], "Hashing") as on_bytes:
        fingerprint, names = batch.fingerprint(run.survey, on_bytes), company(batch.settings, run.survey)
        journal = places.open(fingerprint, company=names, is_free=batch.is_free)
    try:
        with opened_trace(batch.settings["trace"], journal.traced) as trace:
            if trace is not None and trace.missing:
                run.reporter.notice(f"{trace.path} lacks {trace.missing:,} bytes of rows that have finished.")
            progress, end = _kept_safe(run, journal, trace)
        if end.status == "complete" and not progress.failed and not plan["keep_journal"]:
            journal.remove()
    except Exception:
        if journal.counts()[0]:
            run.reporter.say_always(
                f"The finished rows are safe in {places.journal}; `resume` continues the run."
            )
        elif not batch.plan["overwrite"]:  # whose journal says that the output is not of this run
            journal.remove()
        raise
    finally:
        journal.close()
    if end.status != "complete":
        rows = counted(progress.done, "row is", "rows are")
        run.reporter.say(f"{rows} safe in {places.journal}; `resume` continues the run.")
    elif progress.failed:
        run.reporter.say(
            f"{places.journal} is kept: `resume` with `retry_errors` runs the failed rows again."
        )
    return _finished(run, progress, end)


def _kept_safe(run: _Run, journal: Journal, trace: TraceFile | None) -> tuple[Progress, End]:
    batch, plan, (done, failed) = run.batch, run.batch.plan, journal.counts()
    if plan["retry_errors"]:
        done, failed = done - failed, 0
    progress = Progress(run.survey.num_rows, before=done, failed_before=failed)

    def add(outcome: Outcome) -> None:
        # First the trace, then the journal: a trace without an outcome is dropped.
        journal.append(outcome, traced=trace.append(outcome.trace) if trace else None)

    end = _generated(run, partial(journal.pending, with_failed=plan["retry_errors"]), add, progress)
    if end.status == "complete":
        with batch.output.open(batch.work.table(batch, run.survey)) as writer:
            noting = _noting(writer, batch)
            for outcome in journal.outcomes(by_row=plan["order"] == "input"):
                noting.write(outcome)
    return progress, end


def _noting(writer: RowWriter, batch: Batch) -> RowWriter:
    """Return a writer that also passes each outcome to the work; with `no_timings` without times."""

    def write(outcome: Outcome) -> None:
        outcome = untimed(outcome) if batch.plan["no_timings"] else outcome
        batch.work.add(outcome)
        writer.write(outcome)

    return RowWriter(write)


def untimed(outcome: Outcome) -> Outcome:
    """Return the outcome without times, which differ between runs."""
    result = {key: value for key, value in outcome.result.items() if key not in ("timings", "speculation")}
    if result.get("grammar"):
        result["grammar"] = {k: v for k, v in result["grammar"].items() if k != "compile_seconds"}
    return replace(outcome, result=result)


@dataclass(frozen=True, slots=True)
class End:
    """Status of a run at its end, and the number of samples that ran at once in the end.

    stopped: more rows failed than allowed.
    """

    status: Literal["complete", "interrupted", "stopped"]
    max_batch: int


def _generated(
    run: _Run,
    pending: Callable[[Iterator[Row]], Iterator[Row]],
    add: Callable[[Outcome], None],
    progress: Progress,
) -> End:
    """Run the rows that are `pending`; end early at a signal, or after too many errors."""
    batch, num_rows, allowed = run.batch, run.survey.num_rows, run.batch.plan.max_errors
    if progress.done == num_rows:  # no model is needed if all rows are finished
        return End("complete", 0)
    is_chat, is_over = batch.jobs.base.is_chat or run.survey.has_only_chats, False
    with (
        batch.work.open(batch, run.reporter, is_chat=is_chat) as engine,
        run.reporter.watch(progress, engine) as show,
    ):

        def count(tokens: int) -> None:
            progress.add_tokens(tokens, time.monotonic(), engine.occupancy)
            show()

        run.reporter.on_interrupt(lambda: engine.stop(batch.plan["drain"]))
        progress.start(time.monotonic())
        for outcome in engine.run(pending(batch.rows()), count):
            add(outcome)
            progress.add_outcome(outcome)
            if allowed is not None and progress.failed > allowed and not is_over:
                is_over = True
                engine.stop()
        run.reporter.on_interrupt(None)
        end = End("stopped" if is_over else "interrupted" if engine.is_stopped else "complete", engine.limit)
    if end.status == "complete" and progress.done != num_rows:
        raise UsageError(
            f"The input had {num_rows:,} rows before the run and {progress.done:,} during it.",
            hint="Do not change the input while the batch runs.",
        )
    return end


def _finished(run: _Run, progress: Progress, end: End) -> int:
    """Print the summary; return the exit code."""
    tally, rates, work = progress.tally, progress.rates(time.monotonic()), run.batch.work
    summary = BatchSummary(
        status=end.status,
        rows=run.survey.num_rows,
        done=progress.done,
        succeeded=progress.done - progress.failed,
        failed=progress.failed,
        resumed=progress.before,
        prompt_tokens=tally.prompt_tokens,
        prompt_tokens_read=tally.prompt_tokens_read,
        prompt_tokens_copied=tally.prompt_tokens_copied,
        completion_tokens=tally.completion_tokens,
        finish_reasons=dict(tally.reasons),
        errors=dict(tally.errors),
        seconds=round(rates["seconds"], 3),
        rows_per_second=round(rates["rows_per_second"], 3),
        tokens_per_second=round(rates["tokens_per_second"], 3),
        occupancy=round(rates["occupancy"], 4),
        max_batch=end.max_batch,
        seed=run.batch.jobs.base.seed,
        model=run.batch.settings["model"],
        output=str(run.batch.output.path or "stdout"),
        drafts=dict(tally.drafts) or None,
        error_messages=tally.frequent[:_MESSAGES],
    )
    for line in work.lines(run.batch, summary):
        run.reporter.say(line)
    if (path := run.batch.plan["summary"]) is not None:
        try:
            with replaced(Path(path)) as file:
                file.write((to_json(work.record(summary), indent=2) + "\n").encode())
        except OSError as error:
            raise UsageError(f"`summary` = {path}: cannot be written: {error.strerror}.") from error
    return _EXIT.get(end.status, 7 if progress.failed else 0)


class Generation:
    """Work whose rows are prompts and whose results are texts."""

    formats = OUTPUT_FORMATS
    decides = ()

    def rows(self, records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
        return make_rows(records, options, jobs)

    def open(
        self, batch: Batch, reporter: BatchReporter, *, is_chat: bool
    ) -> AbstractContextManager[RowEngine]:
        """Return the engine of the rows: Ray workers, or the model in this process."""
        if batch.plan["engine"] == "ray":
            return open_pool(batch, reporter, is_chat=is_chat)
        return open_loop(
            batch.jobs,
            batch.settings,
            is_chat=is_chat,
            are_guided=batch.jobs.are_guided,
            keep_input=batch.plan["keep_input"],
            reporter=reporter,
        )

    def table(self, batch: Batch, survey: Survey) -> Table:
        """Return the columns of texts, documents, the input, and of requested ids and log-probabilities."""
        columns = survey.columns if batch.plan["keep_input"] else {}
        asked = [key for key in SCORES if key in survey.options or batch.settings[key] is not None]
        asked += IDS if batch.settings["token_ids"] else ()
        return generated(columns, documents=batch.documents, asked=asked)

    def add(self, outcome: Outcome) -> None:
        pass

    def lines(self, batch: Batch, summary: BatchSummary) -> Iterator[str]:
        yield from summary.lines()
        if batch.documents:
            yield from batch.documents.lines()

    def record(self, summary: BatchSummary) -> dict[str, Any]:
        return summary.to_dict()


class StreamStore:
    """Writes outcomes immediately; with `by_row` in the order of rows, so that early ones wait in memory.

    Traces do not wait.
    """

    def __init__(self, writer: RowWriter, *, by_row: bool, trace: TraceFile | None = None) -> None:
        self._writer, self._by_row, self._trace = writer, by_row, trace
        self._order: deque[int] = deque()  # indices of started rows that are not written yet
        self._early: dict[int, Outcome] = {}

    def pending(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield all rows, and note their order."""
        for row in rows:
            self._order.append(row.record.index)
            yield row

    def add(self, outcome: Outcome) -> None:
        """Write the outcome, and outcomes that waited for it."""
        if self._trace:
            self._trace.append(outcome.trace)
            outcome = replace(outcome, trace="")
        if not self._by_row:
            self._writer.write(outcome)
            return
        self._early[outcome.index] = outcome
        while self._order and self._order[0] in self._early:
            self._writer.write(self._early.pop(self._order.popleft()))

    def close(self) -> None:
        """Write the outcomes that waited for rows without an outcome."""
        for index in sorted(self._early):
            self._writer.write(self._early[index])
