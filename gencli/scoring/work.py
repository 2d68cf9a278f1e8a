"""The work of `gencli score`: scores the rows of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from gencli.batch.engines.base import RowEngine
from gencli.batch.outputs import OUTPUT_FORMATS
from gencli.batch.outputs.base import OutputFormat, Table
from gencli.batch.plan import Plan
from gencli.batch.prepare import Batch
from gencli.batch.records import Outcome, Record, Row
from gencli.batch.reporter import BatchReporter
from gencli.batch.rows import RowOptions
from gencli.batch.summary import Summary
from gencli.batch.survey import Survey
from gencli.config.jobs import Jobs
from gencli.scoring.loop import open_scores
from gencli.scoring.options import DECIDING
from gencli.scoring.outputs import open_text, score_table
from gencli.scoring.rows import score_rows
from gencli.scoring.sums import Sums
from gencli.units import clock

__all__ = ["Scoring"]

_SHARED = ("jsonl", "csv", "tsv", "parquet")
_COUNTS = (
    "status", "rows", "done", "succeeded", "failed", "resumed", "errors", "error_messages", "seconds",
    "max_batch", "seed", "model", "output",
)  # fmt: skip


class Scoring:
    """Work whose rows are texts, pairs, choices and chats, and whose results are scores.

    `seed`: seed of the bootstrap.
    """

    decides = DECIDING

    def __init__(self, plan: Plan, *, seed: int) -> None:
        self._plan, self._how = plan, ""
        self.sums = Sums(samples=plan["bootstrap"], seed=seed)
        text = OutputFormat("text", (".txt",), lines=open_text(self._totals))
        self.formats: Mapping[str, OutputFormat] = {
            "text": text,
            **{name: OUTPUT_FORMATS[name] for name in _SHARED},
        }

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
        if not self._how and "convention" in outcome.result:
            self._how = _said(outcome.result["convention"], outcome.result["mode"])

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
        found = summary.to_dict()
        return {
            **{key: found[key] for key in _COUNTS},
            "convention": self._how,
            "totals": self.sums.records(),
        }

    def _totals(self) -> Iterator[str]:
        yield from self.sums.lines()
        if self._how:
            yield self._how


def _said(convention: Mapping[str, Any], mode: str) -> str:
    parts = [f"window {convention['window']}"]
    parts += [f"stride {convention['stride']}"] if "stride" in convention else []
    return f"convention {convention['name']} ({', '.join(parts)}), {mode} log-probabilities"
