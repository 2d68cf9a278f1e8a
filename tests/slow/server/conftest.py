"""The fixtures of tests/server."""

from tests.server.conftest import fake, tiny
