"""Numbers at the ends of their ranges."""

from tests.slow.config.test_job import NUMBERS, assert_no_fault, folder


def test_no_number_ends_in_a_fault(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert_no_fault(NUMBERS.keys() - {"tp"})
