"""The work of `gencli score`: scores the rows of files, and writes the scores and their totals by kind and
group.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gencli.batch.batch_plan import BatchPlan
from gencli.batch.batch_records import (
    BatchReporter,
    ColumnError,
    Failure,
    OnTokens,
    Outcome,
    OwnEngine,
    Record,
    Row,
    RowEngine,
    Summary,
)
from gencli.batch.batch_rows import (
    Kind,
    RowOptions,
    Survey,
    kept_columns,
    listed,
    nested_options,
    prompt_of,
    read_messages,
    read_rows,
)
from gencli.batch.batch_setup import Batch, row_seed
from gencli.batch.output_formats import OUTPUT_FORMATS
from gencli.batch.score_options import DECIDING
from gencli.batch.table_columns import INPUT, OutputFormat, RowWriter, Table, TextTarget, Type, as_cell
from gencli.config.job import Jobs
from gencli.engine.engine import Engine
from gencli.errors import GencliError, UsageError
from gencli.helpers import clock
from gencli.runtime.compiled_grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.model_loading import Reporter
from gencli.runtime.wiring import load_model, make_engine
from gencli.scoring.scorer import Scorer, Task, Terms, make_convention, read_item
from gencli.scoring.text_scores import (
    CHAIN_KEYS,
    MODES,
    ChoiceScore,
    Score,
    Totals,
    score_record,
    shown,
)

_COUNTS = (
    "status", "rows", "done", "succeeded", "failed", "resumed", "errors", "error_messages", "seconds",
    "max_batch", "seed", "model", "output",
)  # fmt: skip


class ScoreWork:
    """Work whose rows are texts, pairs, choices and chats, and whose results are scores.

    `seed`: seed of the bootstrap.
    """

    decides = DECIDING

    def __init__(self, plan: BatchPlan, *, seed: int) -> None:
        self._plan, self._conditions = plan, ""
        self.sums = Sums(samples=plan["bootstrap"], seed=seed)
        text = OutputFormat("text", (".txt",), lines=open_text(self._totals))
        shared = {name: OUTPUT_FORMATS[name] for name in ("jsonl", "csv", "tsv", "parquet")}
        self.formats: Mapping[str, OutputFormat] = {"text": text, **shared}

    def rows(self, records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
        return score_rows(records, options, jobs, self._plan["mode"])

    def open(
        self, batch: Batch, reporter: BatchReporter, *, is_chat: bool
    ) -> AbstractContextManager[RowEngine]:
        return open_scores(batch, reporter, is_chat=is_chat)

    def table(self, batch: Batch, survey: Survey) -> Table:
        """Return the columns of scores, and the kept columns of the input."""
        kept = survey.columns if self._plan["keep_input"] else {}
        has_groups, has_tokens = self._plan["group_by"] is not None, self._plan["tokens"] is not None
        return score_table(kept, has_groups=has_groups, has_tokens=has_tokens)

    def add(self, outcome: Outcome) -> None:
        self.sums.add(outcome.result)
        if not self._conditions and "convention" in outcome.result:
            convention = outcome.result["convention"]
            parts = [f"{key} {convention[key]}" for key in ("window", "stride") if key in convention]
            self._conditions = (
                f"convention {convention['name']} ({', '.join(parts)}), "
                f"{outcome.result['mode']} log-probabilities"
            )

    def lines(self, batch: Batch, summary: Summary) -> Iterator[str]:
        """Yield the counts of rows, their errors, and the totals unless they are among the results."""
        resumed = f", {summary.resumed:,} from before" if summary.resumed else ""
        yield (
            f"{summary.done:,} of {summary.rows:,} rows{resumed}: {summary.succeeded:,} succeeded, "
            f"{summary.failed:,} failed in {clock(summary.seconds)}"
        )
        yield from summary.error_lines()
        if batch.output.format.name != "text":
            yield from self._totals()

    def record(self, summary: Summary) -> dict[str, Any]:
        fields = summary.to_dict()
        counts = {key: fields[key] for key in _COUNTS}
        return {**counts, "convention": self._conditions, "totals": self.sums.records()}

    def _totals(self) -> Iterator[str]:
        yield from self.sums.lines()
        if self._conditions:
            yield self._conditions


_SCORED = ("continuation", "choices")  # columns scored after a context
_COLUMNS = ("text", "context", *_SCORED, "messages")


def score_rows(records: Iterable[Record], options: RowOptions, jobs: Jobs, mode: MODES) -> Iterator[Row]:
    """Yield a row for each record; other columns are data, options are in the column `options`."""

    def row(record: Record, name: str) -> Row:
        scored, values = _scored(record.columns, options), nested_options(record.columns)
        read_item(scored)
        _check_options(values, mode)
        messages = read_messages(scored.get("messages"))
        if mode == "processed":
            jobs.job(values, is_chat=bool(messages))
        return Row(record, name, messages=messages, options=values, scored=scored)

    return read_rows(records, options, row)


def _check_options(values: Mapping[str, Any], mode: MODES) -> None:
    for key in values:
        if key not in CHAIN_KEYS | {"seed", "stages"}:
            raise UsageError(f"{key} is not an option of a row to score.", hint="Leave it out.")
    if values and mode == "raw":
        raise UsageError(
            f"{next(iter(values))} is for scores under the chain, but these are of the model alone.",
            hint="Set `mode` = processed.",
        )


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


@contextmanager
def open_scores(batch: Batch, reporter: Reporter, *, is_chat: bool) -> Iterator[ScoreLoop]:
    """Load the model; the context's value is the loop that scores rows on it."""
    plan, settings, jobs = batch.plan, batch.settings, batch.jobs
    is_raw = plan["mode"] == "raw"
    are_guided = jobs.are_guided and not is_raw
    loaded, _ = load_model(
        settings, reporter, companions=are_guided, rows=max(2, settings["max_batch"]), is_chat=is_chat
    )
    spec, tokenizer = loaded.runner.spec, loaded.tokenizer
    convention = make_convention(
        plan["convention"], spec, tokenizer, window=plan["window"], stride=plan["stride"]
    )
    with closing(make_compiler(grammar_env(loaded), settings["grammar_timeout"])) as compiler:
        engine = make_engine(loaded, settings, compiler, registry=jobs.base.registry)
        scorer = Scorer(engine, spec, tokenizer, convention, top=plan["tokens"] or 0)
        yield ScoreLoop(batch, engine, scorer, Grammars(compiler))


class ScoreLoop(OwnEngine):
    """Scores rows; a row that cannot be scored has an outcome with the error."""

    def __init__(self, batch: Batch, engine: Engine, scorer: Scorer, grammars: Grammars) -> None:
        super().__init__(engine)
        self._batch, self._scorer, self._grammars = batch, scorer, grammars
        self._is_stopped = False

    @property
    def reading(self) -> str:
        """Always "", because rows are short."""
        return ""

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called, after which no row starts."""
        return self._is_stopped

    def stop(self, drain: float = 0.0) -> None:
        """Stop: running rows are dropped, as a row takes only a moment. Safe in a signal handler."""
        self._is_stopped = True
        self._scorer.interrupt()

    def run(self, rows: Iterable[Row], on_tokens: OnTokens = lambda tokens: None) -> Iterator[Outcome]:
        """Yield the outcome of each row as it ends. Interrupted rows have none."""
        for row, score in self._scorer.run(self._tasks(rows)):
            outcome = self._outcome(row, score)
            on_tokens(outcome.read)
            yield outcome

    def _tasks(self, rows: Iterable[Row]) -> Iterator[Task[Row]]:
        for row in rows:
            if self._is_stopped:
                return
            try:
                if row.failure:
                    raise _KnownFailure(row.failure)
                yield Task(row, read_item(row.scored), self._terms(row))
            except GencliError as error:
                yield Task(row, error)
            except Exception as error:  # an error of any kind fails only this row
                yield Task(row, _KnownFailure(Failure.of(error)))

    def _terms(self, row: Row) -> Terms:
        if self._batch.plan["mode"] == "raw":
            return Terms()
        job = self._grammars.ready(self._batch.jobs.job(row.options, is_chat=bool(row.messages)))
        is_limited = "max_tokens" in row.options or self._batch.settings.is_given("max_tokens")
        return Terms(job, row_seed(row, job), job.limits.max_tokens if is_limited else None)

    def _outcome(self, row: Row, score: Score | GencliError) -> Outcome:
        plan, columns = self._batch.plan, row.record.columns
        head: dict[str, Any] = {"id": row.id}
        if (name := plan["group_by"]) is not None:
            value = columns.get(name)
            head["group"] = None if value is None else str(value)
        kept = {"input": kept_columns(row)} if plan["keep_input"] else {}
        if isinstance(score, GencliError):
            failure = score.failure if isinstance(score, _KnownFailure) else Failure.of(score)
            error = {"type": failure.type, "message": failure.message}
            return Outcome(row.record.index, row.id, {**head, "error": error, **kept}, is_error=True)
        tokenizer = None if plan["tokens"] is None else self._scorer.tokenizer
        result = {**head, **score_record(score, tokenizer), **kept}
        parts = score.choices if isinstance(score, ChoiceScore) else (score,)
        return Outcome(row.record.index, row.id, result, read=sum(part.tokens for part in parts))


class _KnownFailure(GencliError):
    """A failure that is already described by its Failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


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
_HEAD = ("id", "tokens", "logprob", "perplexity", "bits/byte", "best or greedy")


def score_table(kept: Mapping[str, Kind], *, has_groups: bool, has_tokens: bool) -> Table:
    """Return the table of scores: a row for each text, continuation or choice."""
    hidden = {*([] if has_groups else ["group"]), *([] if has_tokens else ["token_scores"])}
    columns = {name: kind for name, kind in COLUMNS.items() if name not in hidden}
    return Table({**columns, **{INPUT + name: kind for name, kind in kept.items()}}, _flat)


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
    if "choices" in result:
        rows = [
            {**shared, **row, "choice": number, "best": _measures(result["best"], number)}
            for number, row in enumerate(result["choices"])
        ]
    else:
        rows = [{**shared, **({"banned": result["banned"]} if "banned" in result else {})}]
    for row in rows:
        yield {name: as_cell(kind, row.get(name)) for name, kind in columns.items()}


def _measures(best: Mapping[str, int | None], number: int) -> str | None:
    return " ".join(name for name, index in best.items() if index == number) or None


class _ScoreLines:
    """Writes a line for each row, in columns of fixed width."""

    def __init__(self, target: TextTarget) -> None:
        self._target, self._is_begun = target, False

    def write(self, outcome: Outcome) -> None:
        """Write the row's line; before the first one the column names."""
        if not self._is_begun:
            self._is_begun = True
            self._put(_HEAD)
        self._put(_cells(outcome))

    def _put(self, cells: tuple[str, ...]) -> None:
        widths = (15, 7, 12, 12, 10)
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=False)]
        self._target.write("  ".join([*padded, *cells[len(widths) :]]).rstrip() + "\n")


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


def open_text(lines: Callable[[], Iterator[str]]) -> Callable[[TextTarget, Table], Any]:
    """Return a function that opens a writer of lines; `lines` are written after all rows."""

    @contextmanager
    def opened(target: TextTarget, _: Table) -> Iterator[RowWriter]:
        yield _ScoreLines(target)
        for line in lines():
            target.write(line + "\n")

    return opened


_INTERVAL = (2.5, 97.5)  # percentiles of the bootstrap
_INTERVALS = ("perplexity_interval", "bits_per_byte_interval")
_CELLS = 2**22  # random numbers drawn at once


@dataclass(slots=True)
class _ScoreGroup:
    """The rows of one kind and group: totals, and tokens, bytes and log-probability of each row."""

    kind: str
    name: str | None
    totals: Totals = field(default_factory=Totals)
    rows: array[float] = field(default_factory=lambda: array("d"))  # three numbers a row


class Sums:
    """Accumulates records of texts and continuations by kind, and of choices by number of choices.

    `samples`: number of bootstrap samples of rows (with replacement) for a group's 95 % interval
    (percentiles). They depend on `seed` and the order of the rows only. A row takes 24 bytes of memory.
    """

    def __init__(self, *, samples: int, seed: int) -> None:
        self._samples, self._seed = samples, seed
        self._groups: dict[tuple[str, str | None], _ScoreGroup] = {}
        self._num_choices = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of a row; rows with an error do not count."""
        if "error" in record:
            return
        if "choices" in record:
            self._num_choices += 1
            return
        kind, name = "continuations" if "greedy" in record else "texts", record.get("group")
        group = self._groups.setdefault((kind, name), _ScoreGroup(kind, name))
        totals = Totals.of_record(record)
        group.totals = totals if not group.rows else group.totals + totals
        group.rows.extend((totals.tokens, totals.num_bytes, totals.possible))

    def records(self) -> list[dict[str, Any]]:
        """Return the totals of each group as JSON."""
        return [
            {
                "kind": group.kind,
                "group": group.name,
                "rows": len(group.rows) // 3,
                **group.totals.record(),
                **dict(zip(_INTERVALS, self._intervals(group), strict=True)),
            }
            for group in self._groups.values()
        ]

    def lines(self) -> Iterator[str]:
        """Yield a line for each group."""
        for group in self._groups.values():
            totals, (interval, _) = group.totals, self._intervals(group)
            range_ = f" (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""
            words = f", per word {shown(totals.word_perplexity)}" if totals.words else ""
            banned = f"; {totals.banned} more tokens are banned" if totals.banned else ""
            name = "" if group.name is None else f"{group.name}: "
            kind = "" if group.kind == "texts" else f"{group.kind}: "
            yield (
                f"{name}{kind}perplexity per token {shown(totals.perplexity)} "
                f"+/- {shown(totals.perplexity_error)}{range_}{words}, "
                f"per byte {shown(totals.byte_perplexity)}; "
                f"bits per byte {shown(totals.bits_per_byte)}; "
                f"{totals.tokens} tokens of {len(group.rows) // 3} rows{banned}"
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
