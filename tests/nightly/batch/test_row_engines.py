"""Steps ahead of the host."""

from tests.slow.batch.test_row_engines import check_same


def test_results_and_journal_are_the_same_of_two_at_a_time(bench, monkeypatch):
    check_same(bench, monkeypatch, "--max-batch", 2)
