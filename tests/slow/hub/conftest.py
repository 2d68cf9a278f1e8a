"""The fixtures of tests/hub."""

from tests.hub.conftest import _server, gencli, hub
