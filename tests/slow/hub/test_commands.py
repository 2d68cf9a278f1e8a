"""The commands with models of the hub: what fetches, what refuses to, and what is said."""

import os
import sys

import pytest

from tests.helpers.terminals import begin, until_closed
from tests.hub.server import Fault
from tests.hub.test_commands import SHORT, WEIGHTS


def at_a_terminal(*arguments, answer=b"", env=()):
    """A real process whose three streams are a terminal; its exit code and what it shows."""
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "", "COLUMNS": "100", **dict(env)}
    command = [sys.executable, "-m", "gencli", *arguments]
    process, leader = begin(command, ("stdin", "stdout", "stderr"), env=env)
    os.write(leader, answer)
    shown = until_closed(leader)
    return process.wait(timeout=60), shown.decode()


def test_on_a_terminal_a_model_is_fetched_with_a_bar_and_runs(hub):
    hub.faults[WEIGHTS] = [Fault(slow=0.3)]
    code, seen = at_a_terminal("run", "-m", "some/one", *SHORT, "hi")
    assert code == 0, seen
    assert "some/one: 2.0 MB in" in seen
    assert "Fetching some/one" in seen
    assert "MB/s" in seen or "kB/s" in seen
    assert "Fetched 2.0 MB" in seen


def test_much_is_asked_about_on_a_terminal(hub):
    hub.repos["some/one"].listed[WEIGHTS] = {
        "lfs": {"size": 12 * 10**9, "sha256": "0" * 64, "pointerSize": 130}
    }
    code, seen = at_a_terminal("run", "-m", "some/one", *SHORT, "hi", answer=b"n\r")
    if "GB free" in seen:
        pytest.skip("the disk has no room for 12 GB")
    assert code == 5
    assert "Fetch 12.0 GB? [y/N]" in seen
    assert "some/one is not fetched" in seen
