"""The work of `gencli batch`: generates a text for each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from gencli.batch.engines.base import RowEngine
from gencli.batch.engines.local import open_loop
from gencli.batch.outputs import OUTPUT_FORMATS
from gencli.batch.outputs.base import Table
from gencli.batch.outputs.columns import IDS, SCORES, generated, of_result
from gencli.batch.prepare import Batch
from gencli.batch.records import Outcome, Record, Row
from gencli.batch.reporter import BatchReporter
from gencli.batch.rows import RowOptions, make_rows
from gencli.batch.summary import Summary
from gencli.batch.survey import Kind, Survey
from gencli.config.jobs import Jobs

__all__ = ["Generation"]


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
            from gencli.batch.engines.ray import open_pool

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
        kept: dict[str, Kind] = {**columns, **dict.fromkeys((of_result(key) for key in asked), "text")}
        return generated(kept, documents=batch.documents)

    def add(self, outcome: Outcome) -> None:
        pass

    def lines(self, batch: Batch, summary: Summary) -> Iterator[str]:
        yield from summary.lines()
        if batch.documents:
            yield from batch.documents.lines()

    def record(self, summary: Summary) -> dict[str, Any]:
        return summary.to_dict()
