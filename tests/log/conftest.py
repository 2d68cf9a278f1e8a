"""The command line with a log of its own."""

import pytest

from gencli.run_log import log_file
from tests.cli.conftest import FAKE
from tests.config.conftest import gencli, here  # noqa: F401 - fixtures


@pytest.fixture
def logged(here, tmp_path, monkeypatch, gencli):  # noqa: F811
    """Call `logged(*arguments)`: a run on the fake model that is kept. The folder is empty, as is the log."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    def call(*arguments, stdin=b""):
        result = gencli("run", *FAKE, "--log", "--max-tokens", "12", *arguments, stdin=stdin)
        assert "not kept" not in result.err
        return result

    return call


@pytest.fixture
def database(logged):
    """Where the log of the test is."""
    return log_file()
