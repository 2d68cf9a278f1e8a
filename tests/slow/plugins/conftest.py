"""The fixtures of tests/plugins."""

from tests.plugins.conftest import gencli, install, plugin, run
