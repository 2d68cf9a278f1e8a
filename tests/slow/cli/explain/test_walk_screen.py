"""The walk on a terminal: keys come from it, and it is as before in the end."""

import os
import re
import time

import pytest

from tests.helpers.quick import quick_gencli
from tests.helpers.terminals import begin, until_closed

OPENED, CLOSED = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def trace(gencli, tmp_path):
    file = tmp_path / "t.jsonl"
    assert gencli("run", "-m", "fake", "--seed", "3", "--max-tokens", "5", "--trace", file, "a").code == 0
    return file


def test_the_terminal_is_restored(trace):
    for leave in [b"q", b"\x03"]:
        import pty
        import termios

        process, leader = begin(
            [quick_gencli(), "explain", trace, "--keys", "--at", "2"],
            ("stdin", "stdout", "stderr"),
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        before = termios.tcgetattr(leader)[3]
        seen = b""
        while b"token 2 of 5" not in seen:
            seen += os.read(leader, 65536)
        assert OPENED in seen, leave
        assert termios.tcgetattr(leader)[3] != before, leave  # no echo while it walks
        os.write(leader, leave)
        while CLOSED not in seen:
            seen += os.read(leader, 65536)
        while termios.tcgetattr(leader)[3] != before:
            time.sleep(0.01)
        until_closed(leader)
        assert process.wait(timeout=60) == 0, leave
        assert not re.search(rb"Traceback", seen), leave
