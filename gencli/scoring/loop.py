"""The loop of `gencli score`: scores the rows of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from gencli.batch.engines.base import OnTokens, OwnEngine
from gencli.batch.feed import row_seed
from gencli.batch.prepare import Batch
from gencli.batch.records import Failure, Outcome, Row
from gencli.batch.rows import kept_columns
from gencli.engine.engine import Engine
from gencli.errors import GencliError
from gencli.runtime.grammars import Grammars, grammar_env, make_compiler
from gencli.runtime.reporter import Reporter
from gencli.runtime.wiring import load_model, make_engine
from gencli.scoring.items import read_item
from gencli.scoring.scorer import Scorer, Task, Terms, make_convention
from gencli.scoring.scores import ChoiceScore, Score, score_record

__all__ = ["ScoreLoop", "open_scores"]


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
        for row, found in self._scorer.run(self._tasks(rows)):
            outcome = self._outcome(row, found)
            on_tokens(outcome.read)
            yield outcome

    def _tasks(self, rows: Iterable[Row]) -> Iterator[Task[Row]]:
        for row in rows:
            if self._is_stopped:
                return
            try:
                if row.failure:
                    raise _Known(row.failure)
                yield Task(row, read_item(row.scored), self._terms(row))
            except GencliError as error:
                yield Task(row, error)
            except Exception as error:  # an error of any kind fails only this row
                yield Task(row, _Known(Failure.of(error)))

    def _terms(self, row: Row) -> Terms:
        if self._batch.plan["mode"] == "raw":
            return Terms()
        job = self._grammars.ready(self._batch.jobs.job(row.options, is_chat=bool(row.messages)))
        is_limited = "max_tokens" in row.options or self._batch.settings.is_given("max_tokens")
        return Terms(job, row_seed(row, job), job.limits.max_tokens if is_limited else None)

    def _outcome(self, row: Row, found: Score | GencliError) -> Outcome:
        plan, columns = self._batch.plan, row.record.columns
        head: dict[str, Any] = {"id": row.id}
        if (name := plan["group_by"]) is not None:
            value = columns.get(name)
            head["group"] = None if value is None else str(value)
        kept = {"input": kept_columns(row)} if plan["keep_input"] else {}
        if isinstance(found, GencliError):
            failure = found.failure if isinstance(found, _Known) else Failure.of(found)
            error = {"type": failure.type, "message": failure.message}
            return Outcome(row.record.index, row.id, {**head, "error": error, **kept}, is_error=True)
        tokenizer = None if plan["tokens"] is None else self._scorer.tokenizer
        result = {**head, **score_record(found, tokenizer), **kept}
        parts = found.choices if isinstance(found, ChoiceScore) else (found,)
        return Outcome(row.record.index, row.id, result, read=sum(part.tokens for part in parts))


class _Known(GencliError):
    """A failure that is already described by its Failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
