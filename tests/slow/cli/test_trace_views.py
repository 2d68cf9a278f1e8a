"""A trace shown live, and walks by keys through a trace and a tree."""

import fcntl
import os
import re
import select
import struct
import time

import pytest
from rich.cells import cell_len

from gencli.cli.navigation_pages import draw
from gencli.cli.trace_views import TraceWalk
from gencli.explain.tree_file import read_tree
from tests.cli.records import record, text
from tests.cli.test_trace_views import plain
from tests.helpers.quick import quick_gencli
from tests.helpers.terminals import begin, until_closed


def test_lines_fit_any_screen_and_have_the_token():
    wide = text(*(record(at, "\u4e2d\u6587" * 3) for at in range(300)))
    for panel in ["distribution", "alternatives", "help"]:
        for height in [1, 2, 5, 12, 60]:
            for width in [1, 7, 40, 200]:
                lines = plain(TraceWalk((wide,), token=150, panel=panel), width, height)
                assert len(lines) <= height, (panel, height, width)
                assert all(cell_len(line) <= width for line in lines), (panel, height, width)

    long = text(*(record(at, f"<{at}>") for at in range(5000)))
    for token in (0, 1, 77, 2500, 4999):
        found = [part for line in draw(TraceWalk((long,), token=token), 60, 24) for part in line]
        assert ("current", f"<{token}>") in found


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


def test_a_walk_on_a_terminal(gencli, spawn, tmp_path):
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    trace, path = tmp_path / "trace", tmp_path / "tree"
    run = ("run", "-m", "fake", "--allow-ids", "97,98,99", "--max-tokens", "9", "-q", "--seed", "1", "hi")
    assert gencli(*run, "--trace", trace).code == 0
    assert gencli("fork", trace, "--at", "3", "-n", "2", "--tree", path).code == 0
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    before = termios.tcgetattr(leader)
    words = ("fork", "walk", path, "-n", "3")
    process = spawn(*words, stdin=follower, stderr=follower, env={**os.environ, "TERM": "xterm"})

    def until(text):
        seen, deadline = b"", time.monotonic() + 60
        while text not in seen and time.monotonic() < deadline:
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536)
        assert text in seen

    until(b"q leave")
    os.write(leader, b"\x1b[C]]n")
    until(b"3 new at 5.")
    os.write(leader, b"\x1b[Dxyeq")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    tree = read_tree(path)
    assert [*tree.nodes] == [0, 2]  # the walk pruned node 1, and so its children
    assert out.decode() == tree.text(0) + "\n"
    assert termios.tcgetattr(leader) == before
    os.close(leader)
    os.close(follower)
