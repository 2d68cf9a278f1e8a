"""Nothing holds the rows: ten times as many take no more memory. scripts/measure_batch_memory.py has 10^6."""

import json
import tracemalloc

import pytest

from gencli.batch.batch_records import Outcome
from gencli.batch.batch_rows import RowOptions, make_rows, row_jobs
from gencli.batch.batch_sources import Selected, open_input
from gencli.batch.output_formats import plan_output
from gencli.config.settings import FLAG, resolve

SLACK = 300_000  # bytes: buffers that are full at the larger number only


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write(path, num_rows):
    with plan_output(str(path)).open() as writer:
        for index in range(num_rows):
            writer.write(Outcome(index, str(index), {"text": f"A prompt of {index * 7919} letters."}))


def array(path, num_rows):
    path.write_text(json.dumps([{"text": f"A prompt of {index}."} for index in range(num_rows)]))


def check_reading(folder, name):
    jobs = row_jobs(resolve((FLAG, {"seed": 1})))

    def peak(num_rows):
        path = folder / str(num_rows) / name
        path.parent.mkdir(exist_ok=True)
        (array if name == "a.json" else write)(path, num_rows)
        records = Selected(open_input([str(path)]), sample=100)

        def work():
            assert sum(row.failure is None for row in rows()) == 100

        def rows():
            return make_rows(records, RowOptions(prompt_column="text"), jobs)

        work()  # what is imported and cached on first use is no memory of rows
        return peak_of(work)

    assert peak(10_000) < peak(1000) + SLACK


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz"])
def test_results_are_written_one_by_one(tmp_path, monkeypatch, name):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("gencli.batch.output_formats._ROWS", 500)
    path = tmp_path / name
    write(path, 10)
    assert peak_of(lambda: write(path, 5000)) < peak_of(lambda: write(path, 1000)) + SLACK
