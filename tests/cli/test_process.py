"""What only a real process shows: pipes, signals, encodings, terminals."""

import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.terminals import on_a_terminal

LONG = ("--seed", "1", "--max-tokens", "1000", "hi")


MANY = (*LONG, *["hi"] * 63, "--max-batch", "1")  # half a minute, if nobody ends it


SHORT = ("--seed", "1", "--max-tokens", "20", "hi")


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_second_ctrl_c_ends_at_once(start):
    process = start(*MANY)
    process.stdout.read(10)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130
    assert b"Traceback" not in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_without_a_traceback(start):
    with Path("/dev/full").open("w") as full:
        code, _, err = ended(start(*SHORT, stdout=full))
    assert code == 6
    assert err == b"Error: Cannot write to stdout: No space left on device.\n"


def test_interrupted_stands_on_a_line_of_its_own_on_a_terminal():
    code = "print(1, end=str(), flush=True); from gencli.cli.terminal import render; render.say_interrupted()"
    assert on_a_terminal([sys.executable, "-c", code], {"NO_COLOR": "1"}) == b"1\r\nInterrupted.\r\n"
