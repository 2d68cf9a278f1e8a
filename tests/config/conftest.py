"""The command line in an empty folder, without what the user has configured."""

import os

import pytest

from tests.cli.conftest import FAKE, Result, gencli, run, start  # noqa: F401 - fixtures


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder, no user's folder, no variables of gencli. Call it to write a preset."""
    for name in [name for name in os.environ if name.startswith("GENCLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def chain(here, gencli):  # noqa: F811
    """Call `chain(*arguments)`: the rows of --show-chain as (stage, value, origin)."""

    def show(*arguments):
        result = gencli("run", *arguments, "--show-chain", "--format", "json")
        assert result.code == 0, result.err
        return [(row["stage"], row["value"], row["origin"]) for row in result.json][1:-1]

    return show
