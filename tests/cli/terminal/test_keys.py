"""Keys of a terminal, from the bytes that it sends."""

import os

import pytest

from gencli.cli.terminal_keys import keys_of, read_keys
from gencli.errors import UsageError


def keys(*bursts):
    """The keys of bytes that come in bursts, between which a sequence would have ended."""
    waiting = [[bytes([byte]) for byte in burst] for burst in bursts]

    def read(seconds):
        if waiting and not waiting[0]:
            waiting.pop(0)
            if seconds is not None:
                return b""
        while waiting and not waiting[0]:
            waiting.pop(0)
        return waiting[0].pop(0) if waiting else b""

    return [*keys_of(read)]


def test_bytes_are_keys(monkeypatch):
    for sent, pressed in [
        (b"nq", ["n", "q"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA\x1b[H\x1b[F\x1b[1~\x1b[4~", ["up", "home", "end", "home", "end"]),
        (b"\r\n", ["enter", "enter"]),
        ("é€😀".encode(), ["é", "€", "😀"]),
        (b"\x1b[15~x", ["f5", "x"]),
        (b"\x1b[" + b"1" * 40, ["escape", "[", *"1" * 40]),
        (b"\x1bx", ["escape", "x"]),
        (b"\xff", ["\ufffd"]),
    ]:
        assert keys(sent) == pressed, sent

    assert keys(b"\x1b", b"n") == ["escape", "n"]
    assert keys(b"\x1b[A", b"\x1b") == ["up", "escape"]

    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with pytest.raises(UsageError, match="from a terminal"):
            read_keys()
