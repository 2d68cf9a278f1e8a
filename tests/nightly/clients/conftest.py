"""The fixtures of tests/clients."""

from tests.clients.conftest import server
