"""Notices are no faults here: real models have formats that are widened, and templates without tools."""

import os

import pytest

LIMIT = 3600 if os.environ.get("FULL") else 900  # seconds of a test


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning"))
        item.add_marker(pytest.mark.timeout(LIMIT))
