"""Real processes on a terminal of their own, and what it shows of them."""

import os
import subprocess

__all__ = ["begin", "on_a_terminal", "until_closed"]


def begin(command, streams=("stdout", "stderr"), **options):
    """Start a process with these streams on a terminal; the file to type and read at comes with it."""
    import pty  # which Windows lacks

    leader, follower = pty.openpty()
    options = {"stdin": subprocess.DEVNULL, **options, **dict.fromkeys(streams, follower)}
    process = subprocess.Popen(command, **options)
    os.close(follower)
    return process, leader


def until_closed(leader):
    """All that the terminal shows yet, until its process ends."""
    chunks = []
    try:
        while chunk := os.read(leader, 65536):
            chunks.append(chunk)
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(leader)
    return b"".join(chunks)


def on_a_terminal(command, env, stdout=None):
    """What a process writes to a terminal that is both stdout and stderr, or stderr alone."""
    streams = ("stderr",) if stdout else ("stdout", "stderr")
    process, leader = begin(command, streams, env={**os.environ, **env}, stdout=stdout)
    shown = until_closed(leader)
    assert process.wait(timeout=60) == 0
    return shown
