"""Every number that can be given, at its bounds, beyond them, and as no number at all: no fault of gencli."""

from tests.slow.config.test_extremes import NUMBERS, assert_no_fault, folder


def test_no_number_ends_in_a_fault(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert_no_fault(NUMBERS.keys() - {"tp"})
