"""Workers of Ray, without a cluster."""

from contextlib import contextmanager

import pytest

from gencli.batch.ray_workers import Worker
from tests.batch.test_row_engines import ROWS, alone, loop
from tests.batch.test_workers import reports

ray = pytest.importorskip("ray")


@contextmanager
def opened():
    yield loop()


def test_a_worker_takes_rows_while_others_run_and_makes_what_each_is_alone():
    worker, found, tokens = Worker(opened), {}, 0
    blocks = [ROWS[:7], ROWS[7:9], ROWS[9:]]
    while len(found) < len(ROWS):
        report = worker.exchange(blocks.pop(0) if blocks else ())
        found.update((one.index, one.result["texts"]) for one in report.outcomes)
        tokens += report.tokens
    assert found == alone()
    assert tokens > 0


def test_a_worker_that_is_told_to_stop_ends_what_runs():
    worker = Worker(opened)
    list(reports(worker, lambda report: report.is_ready))
    worker.exchange(ROWS, drain=60.0)
    last = list(reports(worker, lambda report: report.is_over))[-1]
    assert last.is_over
