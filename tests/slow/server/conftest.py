"""The fixtures of tests/server, and the server of tests/clients."""

from tests.clients.conftest import server
from tests.server.conftest import fake, tiny
