"""The fixtures of tests/explain/page."""

from tests.explain.page.conftest import browser, tab, texts, traced
