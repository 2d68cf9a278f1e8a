"""A walk through a tree: what keys do, and what is drawn."""

import fcntl
import os
import select
import struct
import time

import pytest

from gencli.explain.tree_file import read_tree


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
