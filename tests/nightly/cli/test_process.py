"""What only a real process shows: pipes, signals, encodings, imports."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.test_process import LONG, SHORT, ended
from tests.slow.cli.test_process import assert_an_encoding_does_not_fail


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_ctrl_c_before_the_run_ends_at_once(start):
    process = start(*LONG, "--debug", own=True)
    while "torch" not in Path(f"/proc/{process.pid}/maps").read_text():  # the imports have begun
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"Interrupted.\n")


def test_ctrl_c_while_a_run_ends_does_not_change_what_it_ends_with(start):
    process = start(*SHORT, own=True, stderr=subprocess.PIPE)
    err = b""
    while b"tokens, " not in err:  # the summary
        err += os.read(process.stderr.fileno(), 4096)
    while process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
    code, _, rest = ended(process)
    assert code in (0, 130)
    assert b"Traceback" not in err + rest


def test_an_encoding_that_lacks_characters_does_not_fail(start):
    for encoding in ("cp1252", "ascii"):
        for form in ("text", "json"):
            assert_an_encoding_does_not_fail(start, encoding, form)
