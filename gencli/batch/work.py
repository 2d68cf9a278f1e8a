"""Interface of a batch's work on its rows: `generation` makes texts, gencli.scoring.work scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from gencli.batch.engines.base import RowEngine
from gencli.batch.outputs.base import OutputFormat, Table
from gencli.batch.records import Outcome, Record, Row
from gencli.batch.rows import RowOptions
from gencli.batch.summary import Summary
from gencli.batch.survey import Survey
from gencli.config.jobs import Jobs

if TYPE_CHECKING:
    from gencli.batch.prepare import Batch
    from gencli.batch.reporter import BatchReporter

__all__ = ["Work"]


class Work(Protocol):
    """Turns records into rows, rows into outcomes, and outcomes into an output."""

    @property
    def formats(self) -> Mapping[str, OutputFormat]:
        """The output formats by name; the first one is used for stdout."""
        ...

    @property
    def decides(self) -> tuple[str, ...]:
        """Keys of the plan that affect results, so that a run with other values cannot resume this one."""
        ...

    def rows(self, records: Iterable[Record], options: RowOptions, jobs: Jobs) -> Iterator[Row]:
        """Yield a row for each record; a fault becomes the `failure` of its row."""
        ...

    def open(
        self, batch: Batch, reporter: BatchReporter, *, is_chat: bool
    ) -> AbstractContextManager[RowEngine]:
        """Load the model; the context's value runs rows. `is_chat`: all rows need the chat template."""
        ...

    def table(self, batch: Batch, survey: Survey) -> Table:
        """Return the columns of a table of the results."""
        ...

    def add(self, outcome: Outcome) -> None:
        """Record a result that is being written."""
        ...

    def lines(self, batch: Batch, summary: Summary) -> Iterator[str]:
        """Yield the lines of the run's summary for a person."""
        ...

    def record(self, summary: Summary) -> dict[str, Any]:
        """Return the summary of the run as JSON."""
        ...
