"""The example package is installed by pip into an empty folder, found there, and runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import FAKE

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "plugin_minimal"


@pytest.fixture(scope="module")
def gencli(tmp_path_factory):
    """gencli as a process that finds the installed package."""
    target = tmp_path_factory.mktemp("installed")
    source = tmp_path_factory.mktemp("source") / "package"
    source.mkdir()
    for path in PACKAGE.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, source], check=True)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT)]), "GENCLI_NO_PLUGINS": ""}

    def call(*arguments, **changes):
        command = [sys.executable, "-m", "gencli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=target, env=env | changes)

    return call


def test_it_is_listed_with_its_package(gencli):
    done = gencli("stages", "list")
    (line,) = [line for line in done.stdout.splitlines() if "max_run" in line]
    assert line.startswith("constrain")
    assert line.endswith("gencli-max-run 0.1.0")


def test_it_runs(gencli):
    arguments = ("run", *FAKE, "--logit-bias", "97=50", "--max-tokens", "12", "--seed", "1")
    assert gencli(*arguments, "hi").stdout == "a" * 12 + "\n"
    done = gencli(*arguments, "--stage", "max_run=2", "hi")
    assert done.returncode == 0, done.stderr
    assert "aaa" not in done.stdout
    assert "aa" in done.stdout


def test_it_keeps_the_contract(gencli):
    assert gencli("stages", "check", "max_run").returncode == 0


def test_it_is_gone_when_plugins_are_off(gencli):
    assert "max_run" not in gencli("stages", "list", GENCLI_NO_PLUGINS="1").stdout


def test_it_is_as_short_as_promised():
    text = (PACKAGE / "gencli_max_run.py").read_text()
    body = text[text.index("class MaxRun(") :].splitlines()
    assert len(body) <= 15
