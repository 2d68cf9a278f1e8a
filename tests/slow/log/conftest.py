"""The fixtures of tests/log."""

from tests.log.conftest import FAKE, database, gencli, here, logged
