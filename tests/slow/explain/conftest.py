"""The fixtures of tests/explain."""

from tests.explain.conftest import gencli
