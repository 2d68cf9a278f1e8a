"""Nothing holds the rows: ten times as many take no more memory. scripts/measure_batch_memory.py has 10^6."""

import pytest

from tests.slow.batch.test_memory import check_reading


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz"])
def test_rows_of_other_formats_are_read_one_by_one(tmp_path, name):
    check_reading(tmp_path, name)


def test_rows_are_read_one_by_one(tmp_path):
    check_reading(tmp_path, "a.json")
