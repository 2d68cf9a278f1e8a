"""The fixtures of tests/models/hub."""

from tests.models.hub.conftest import _certificates, _server, gencli, hub
