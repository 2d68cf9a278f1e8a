"""The work of `gencli score`: scores the rows of files, and writes the scores and their totals by kind and
group.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gencli.batch.batch_options import DECIDING
from gencli.batch.batch_plan import BatchPlan
from gencli.batch.batch_records import (
    BatchReporter,
    BatchSummary,
    ColumnError,
    Failure,
    OnTokens,
    Outcome,
    OwnEngine,
    Record,
    Row,
    RowEngine,
)
from gencli.batch.batch_rows import (
    Kind,
    RowOptions,
    Survey,
    listed,
    nested_options,
    prompt_of,
    read_messages,
    read_rows,
)
from gencli.batch.batch_setup import Batch, row_seed
from gencli.batch.output_formats import OUTPUT_FORMATS
from gencli.batch.table_columns import INPUT, OutputFormat, RowWriter, Table, TextTarget, Type, as_cell
from gencli.config.job import Jobs
from gencli.engine.engine import Engine
from gencli.errors import GencliError, UsageError
from gencli.helpers import clock, counted
from gencli.runtime.compiled_grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.wiring import load_model, make_engine
from gencli.scoring.scorer import Task, Terms, TextScorer, make_convention, read_item
from gencli.scoring.text_scores import CHAIN_KEYS, MODES, ChoiceScore, Score, Totals, score_record, shown

_COUNTS = (
    "status", "rows", "done", "succeeded", "failed", "resumed", "errors", "error_messages", "seconds",
    "max_batch", "seed", "model", "output",
)  # fmt: skip


class ScoreWork:
    """Work on texts, pairs, choices and chats, whose results are scores. `seed`: of the bootstrap."""

    decides = DECIDING

    def __init__(self, plan: BatchPlan, *, seed: int) -> None:
        self._plan, self._conditions = plan, ""
        self.sums = Sums(samples=plan["bootstrap"], seed=seed)
        text = OutputFormat("text", (".txt",), lines=self._open_text, has_fields=False)
        shared = {name: OUTPUT_FORMATS[name] for name in ("jsonl", "csv", "tsv", "parquet")}
        self.formats: Mapping[str, OutputFormat] = {"text": text, **shared}

    def rows(self, records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
        return score_rows(records, options, jobs, self._plan["mode"])

    @contextmanager
    def open(self, batch: Batch, reporter: BatchReporter, *, is_chat: bool) -> Iterator[RowEngine]:
        plan, settings, jobs = batch.plan, batch.settings, batch.jobs
        are_guided = jobs.are_guided and plan["mode"] != "raw"
        loaded, _ = load_model(
            settings, reporter, companions=are_guided, rows=max(2, settings["max_batch"]), is_chat=is_chat
        )
        spec, tokenizer = loaded.runner.spec, loaded.tokenizer
        convention = make_convention(
            plan["convention"], spec, tokenizer, window=plan["window"], stride=plan["stride"]
        )
        with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
            engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
            scorer = TextScorer(engine, spec, tokenizer, convention, top=plan["tokens"] or 0)
            yield ScoreLoop(batch, engine, scorer, Grammars(compiler))

    def table(self, batch: Batch, survey: Survey) -> Table:
        """Return the columns of scores, and the kept columns of the input.

        A text or continuation has one row, an item with choices a row for each.
        """
        unused = {key: self._plan[option] is None for key, option in _OPTIONAL.items()}
        columns = {name: kind for name, kind in COLUMNS.items() if not unused.get(name)}
        kept = survey.columns if self._plan["keep_input"] else {}
        return Table({**columns, **{INPUT + name: kind for name, kind in kept.items()}}, _flat)

    def add(self, outcome: Outcome) -> None:
        self.sums.add(outcome.result)
        if not self._conditions and "convention" in outcome.result:
            convention = outcome.result["convention"]
            parts = [f"{key} {convention[key]}" for key in ("window", "stride") if key in convention]
            self._conditions = (
                f"convention {convention['name']} ({', '.join(parts)}), "
                f"{outcome.result['mode']} log-probabilities"
            )

    def lines(self, batch: Batch, summary: BatchSummary) -> Iterator[str]:
        """Yield the counts of rows, their errors, and the totals unless they are among the results."""
        yield f"{summary.counts} in {clock(summary.seconds)}"
        yield from summary.error_lines()
        if batch.output.format.has_fields:
            yield from self._totals()

    def record(self, summary: BatchSummary) -> dict[str, Any]:
        fields = summary.to_dict()
        counts = {key: fields[key] for key in _COUNTS}
        return {**counts, "convention": self._conditions, "totals": self.sums.records()}

    def _totals(self) -> Iterator[str]:
        yield from self.sums.lines()
        if self._conditions:
            yield self._conditions

    @contextmanager
    def _open_text(self, target: TextTarget, _: Table) -> Iterator[RowWriter]:
        """Open a writer of a line for each row, in columns of fixed width; the totals follow all rows."""
        widths, is_begun = (15, 7, 12, 12, 10), False

        def write(outcome: Outcome) -> None:
            nonlocal is_begun
            for cells in [_cells(outcome)] if is_begun else [_HEAD, _cells(outcome)]:
                padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
                target.write("  ".join([*padded, *cells[len(widths) :]]).rstrip() + "\n")
            is_begun = True

        yield RowWriter(write)
        for line in self._totals():
            target.write(line + "\n")


_SCORED = ("continuation", "choices")  # columns scored after a context
_COLUMNS = ("text", "context", *_SCORED, "messages")


def score_rows(records: Iterable[Record], options: RowOptions, jobs: Jobs, mode: MODES) -> Iterator[Row]:
    """Yield a row for each record; other columns are data, options are in the column `options`."""

    def row(record: Record, name: str) -> Iterator[Row]:
        scored, values = _scored(record.columns, options), nested_options(record.columns)
        read_item(scored)
        for key in values:
            if key not in CHAIN_KEYS | {"seed", "stages"}:
                raise UsageError(f"{key} is not an option of a row to score.", hint="Leave it out.")
        if values and mode == "raw":
            raise UsageError(
                f"{next(iter(values))} is for scores under the chain, but these are of the model alone.",
                hint="Set `mode` = processed.",
            )
        messages = read_messages(scored.get("messages"))
        if mode == "processed":
            jobs.job(values, is_chat=bool(messages))
        yield Row(record, name, messages=messages, options=values, scored=scored)

    return read_rows(records, options, row)


def _scored(columns: Mapping[str, Any], options: RowOptions) -> dict[str, Any]:
    """Return the columns to score; lists in the cells of a table are JSON.

    A template or prompt column gives the context of a row with a continuation or choices, else the text.
    """
    scored = {key: columns[key] for key in _COLUMNS if columns.get(key) not in (None, "")}
    if options.is_data:
        prompt, scored = prompt_of(columns, options), {key: scored[key] for key in _SCORED if key in scored}
        name = "messages" if isinstance(prompt, list) else "context" if scored else "text"
        scored = {name: prompt, **scored}
    elif not scored and isinstance(columns.get("prompt"), str):
        return {"text": columns["prompt"]}
    elif not scored:
        raise ColumnError(
            f"The row has nothing to score. It has: {listed(columns)}.",
            hint="It needs a column text, or context with continuation or choices, or messages; or set "
            "`prompt_column` or `template`.",
        )
    for key in ("choices", "messages"):
        if isinstance(scored.get(key), str):
            with suppress(ValueError):
                scored[key] = json.loads(scored[key])
    return scored


class ScoreLoop(OwnEngine):
    """Scores rows; a row that cannot be scored has an outcome with the error."""

    reading = ""  # rows are short

    def __init__(self, batch: Batch, engine: Engine, scorer: TextScorer, grammars: Grammars) -> None:
        super().__init__(engine)
        self._batch, self._scorer, self._grammars = batch, scorer, grammars
        self.is_stopped = False

    def stop(self, drain: float = 0.0) -> None:
        """Stop: running rows are dropped, as a row takes only a moment. Safe in a signal handler."""
        self.is_stopped = True
        self._scorer.interrupt()

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
        for row, score in self._scorer.run(self._tasks(rows)):
            outcome = self._outcome(row, score)
            on_tokens(outcome.read)
            yield outcome

    def _tasks(self, rows: Iterable[Row]) -> Iterator[Task[Row]]:
        for row in rows:
            if self.is_stopped:
                return
            try:
                if row.failure:
                    raise GencliError(row.failure.message)
                yield Task(row, read_item(row.scored), self._terms(row))
            except Exception as error:  # an error of any kind fails only this row
                yield Task(row, error)

    def _terms(self, row: Row) -> Terms:
        if self._batch.plan["mode"] == "raw":
            return Terms()
        job = self._grammars.ready(self._batch.jobs.job(row.options, is_chat=bool(row.messages)))
        is_limited = "max_tokens" in row.options or self._batch.settings.is_given("max_tokens")
        return Terms(job, row_seed(row, job), job.limits.max_tokens if is_limited else None)

    def _outcome(self, row: Row, score: Score | Exception) -> Outcome:
        plan, columns = self._batch.plan, row.record.columns
        head: dict[str, Any] = {"id": row.id}
        if (name := plan["group_by"]) is not None:
            value = columns.get(name)
            head["group"] = None if value is None else str(value)
        kept = {"input": dict(columns)} if plan["keep_input"] else {}
        if isinstance(score, Exception):
            failure = row.failure or Failure.of(score)
            error = {"type": failure.type, "message": failure.message}
            return Outcome(row.record.index, row.id, {**head, "error": error, **kept}, is_error=True)
        tokenizer = None if plan["tokens"] is None else self._scorer.tokenizer
        result = {**head, **score_record(score, tokenizer), **kept}
        parts = score.choices if isinstance(score, ChoiceScore) else (score,)
        return Outcome(row.record.index, row.id, result, read=sum(part.tokens for part in parts))


COLUMNS: Mapping[str, Kind] = {
    "index": "integer",
    "id": "text",
    "group": "text",
    "choice": "integer",  # counted from 0
    "text": "text",
    "tokens": "integer",
    "scored": "integer",
    "banned": "integer",
    "bytes": "integer",
    "words": "integer",
    "logprob": "number",
    "nll": "number",
    "perplexity": "number",
    "perplexity_error": "number",
    "word_perplexity": "number",
    "byte_perplexity": "number",
    "bits_per_byte": "number",
    "per_token": "number",
    "per_character": "number",
    "per_byte": "number",
    "greedy": "boolean",
    "unconditional": "number",
    "prob": "number",
    "best": "text",  # the measures by which the choice is the best
    "token_scores": "text",
    "convention": "text",
    "mode": "text",
    "error_type": "text",
    "error_message": "text",
}
_OPTIONAL = {"group": "group_by", "token_scores": "tokens"}  # columns, and the options that add them
_HEAD = ("id", "tokens", "logprob", "perplexity", "bits/byte", "best or greedy")


def _flat(outcome: Outcome, columns: Mapping[str, Type]) -> Iterator[dict[str, Any]]:
    result = outcome.result
    error = result.get("error") or {}
    shared = {
        **{key: value for key, value in result.items() if key not in ("choices", "best", "error")},
        "index": outcome.index,
        "id": outcome.id,
        "banned": None if error else 0,
        "error_type": error.get("type"),
        "error_message": error.get("message"),
        **{INPUT + name: value for name, value in (result.get("input") or {}).items()},
    }
    rows = [{"banned": result["banned"]} if "banned" in result else {}]
    if "choices" in result:
        rows = [{**row, "choice": number} for number, row in enumerate(result["choices"])]
        for row in rows:
            row["best"] = " ".join(k for k, index in result["best"].items() if index == row["choice"]) or None
    for row in rows:
        cells = {**shared, **row}
        yield {name: as_cell(kind, cells.get(name)) for name, kind in columns.items()}


def _cells(outcome: Outcome) -> tuple[str, ...]:
    result, name = outcome.result, outcome.id
    if "error" in result:
        return (name, "", "", "", "", f"error: {result['error']['message']}")
    if "choices" in result:
        best = ", ".join(f"{key} {'-' if index is None else index}" for key, index in result["best"].items())
        return (name, "", "", "", "", best)
    banned = result.get("banned")
    last = f"{banned} banned" if banned else ""
    if not banned and "greedy" in result:
        last = "greedy" if result["greedy"] else "not greedy"
    numbers = (shown(result[key]) for key in ("logprob", "perplexity", "bits_per_byte"))
    return (name, str(result["scored"] + (banned or 0)), *numbers, last)


_INTERVAL = (2.5, 97.5)  # percentiles of the bootstrap
_INTERVALS = ("perplexity_interval", "bits_per_byte_interval")
_CELLS = 2**22  # random numbers drawn at once


@dataclass(slots=True)
class _ScoreGroup:
    """The rows of one kind and group: totals, and tokens, bytes and log-probability of each row."""

    totals: Totals = field(default_factory=Totals)
    rows: array[float] = field(default_factory=lambda: array("d"))  # three numbers a row


class Sums:
    """Accumulates records of texts and continuations, by kind and group.

    `samples`: number of bootstrap samples of rows (with replacement) for a group's 95 % interval
    (percentiles). They depend on `seed` and the order of the rows only. A row takes 24 bytes of memory.
    """

    def __init__(self, *, samples: int, seed: int) -> None:
        self._samples, self._seed = samples, seed
        self._groups: dict[tuple[str, str | None], _ScoreGroup] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of a row; rows with an error or with choices do not count."""
        if "error" in record or "choices" in record:
            return
        key = "continuations" if "greedy" in record else "texts", record.get("group")
        group = self._groups.setdefault(key, _ScoreGroup())
        totals = Totals.of_record(record)
        group.totals = totals if not group.rows else group.totals + totals
        group.rows.extend((totals.tokens, totals.num_bytes, totals.possible))

    def records(self) -> list[dict[str, Any]]:
        """Return the totals of each group as JSON."""
        return [
            {
                "kind": kind,
                "group": name,
                "rows": len(group.rows) // 3,
                **group.totals.record(),
                **dict(zip(_INTERVALS, self._intervals(group), strict=True)),
            }
            for (kind, name), group in self._groups.items()
        ]

    def lines(self) -> Iterator[str]:
        """Yield a line for each group."""
        for (kind, name), group in self._groups.items():
            totals, (interval, _) = group.totals, self._intervals(group)
            range_ = f" (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""
            words = f", per word {shown(totals.word_perplexity)}" if totals.words else ""
            more = counted(totals.banned, "more token is", "more tokens are")
            banned = f"; {more} banned" if totals.banned else ""
            yield (
                f"{'' if name is None else f'{name}: '}{'' if kind == 'texts' else f'{kind}: '}"
                f"perplexity per token {shown(totals.perplexity)} "
                f"+/- {shown(totals.perplexity_error)}{range_}{words}, "
                f"per byte {shown(totals.byte_perplexity)}; "
                f"bits per byte {shown(totals.bits_per_byte)}; "
                f"{counted(totals.tokens, 'token')} of {counted(len(group.rows) // 3, 'row')}{banned}"
            )

    def _intervals(self, group: _ScoreGroup) -> tuple[list[float] | None, list[float] | None]:
        """Return the intervals of perplexity and bits per byte; None with one row or banned tokens."""
        rows = np.array(group.rows).reshape(-1, 3)
        count = len(rows)
        if count < 2 or not self._samples or group.totals.banned:
            return None, None
        random, parts = np.random.default_rng(self._seed % 2**63), []
        at_once = max(1, _CELLS // count)
        for start in range(0, self._samples, at_once):
            size = min(at_once, self._samples - start)
            parts.append(rows[random.integers(0, count, (size, count))].sum(axis=1))
        tokens, sizes, logprobs = np.concatenate(parts).T
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return _interval(np.exp(-logprobs / tokens)), _interval(-logprobs / (sizes * math.log(2)))


def _interval(values: np.ndarray[Any, Any]) -> list[float] | None:
    low, high = (float(f"{value:.6g}") for value in np.percentile(values, _INTERVAL))
    return [low, high] if math.isfinite(low) and math.isfinite(high) else None
