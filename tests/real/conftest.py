"""Notices are no faults here: real models have formats that are widened, and templates without tools."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning"))
        item.add_marker(pytest.mark.timeout(900))
