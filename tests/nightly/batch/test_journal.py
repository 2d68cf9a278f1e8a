"""Traces of a batch."""

from tests.slow.batch.test_memory import SLACK, peak_of


def test_rows_that_have_ended_take_no_memory(bench):
    def run(count):
        bench.write([{"prompt": f"Row {n}", "max_tokens": 4} for n in range(count)])
        return bench.run("--overwrite", "--trace", bench.folder / "t", "--max-batch", "2")

    run(4)  # what is imported and cached on first use is no memory of rows
    assert peak_of(lambda: run(60)) < peak_of(lambda: run(15)) + SLACK
