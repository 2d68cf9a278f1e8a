"""What only a real process shows: pipes, signals, encodings, imports."""

import sys

from tests.helpers.terminals import on_a_terminal

LONG = ("--seed", "1", "--max-tokens", "1000", "hi")
MANY = (*LONG, *["hi"] * 63, "--max-batch", "1")  # half a minute, if nobody ends it
SHORT = ("--seed", "1", "--max-tokens", "20", "hi")


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_interrupted_stands_on_a_line_of_its_own_on_a_terminal():
    code = "print(1, end=str(), flush=True); from gencli.cli import render; render.say_interrupted()"
    assert on_a_terminal([sys.executable, "-c", code], {"NO_COLOR": "1"}) == b"1\r\nInterrupted.\r\n"
