"""The fixtures of tests/config."""

from tests.config.conftest import FAKE, Result, chain, gencli, here, run, start
