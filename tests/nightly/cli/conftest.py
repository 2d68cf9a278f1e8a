"""The fixtures of tests/cli."""

from tests.cli.conftest import gencli, run, start
