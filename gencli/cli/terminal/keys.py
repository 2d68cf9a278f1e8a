"""Keys of a terminal, one at a time."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec

from gencli.cli.terminal.render import is_terminal
from gencli.errors import UsageError

__all__ = ["keys_of", "read_keys"]

_ESCAPE = b"\x1b"
_PATIENCE = 0.05  # seconds in which the rest of a key's sequence follows its escape character
_LONGEST = 16  # bytes of a sequence
_NAMES = {
    **dict(zip("ABCDHF", ("up", "down", "right", "left", "home", "end"), strict=True)),
    "1~": "home", "7~": "home", "4~": "end", "8~": "end",
}  # fmt: skip
_Read = Callable[[float | None], bytes]  # the next byte; b"" after so many seconds, and at the end


def read_keys() -> Generator[str, None, None]:
    """Return the keys that are pressed from now on, until the input ends: their names, or the character.

    Names are up, down, left, right, home, end, enter and escape. Closing it sets the terminal back. Raises
    UsageError if stdin is no terminal.
    """
    if not is_terminal(sys.stdin) or find_spec("termios") is None:
        raise UsageError("Keys are read from a terminal, and stdin is none.")
    keys = _keys(sys.stdin.fileno())
    next(keys)
    return keys


def _keys(handle: int) -> Generator[str, None, None]:
    """Yield "" once the terminal sends keys one by one, then the keys."""
    import termios
    import tty

    before = termios.tcgetattr(handle)
    try:
        tty.setcbreak(handle, termios.TCSADRAIN)  # what was typed before is read too
        yield ""
        yield from keys_of(lambda seconds: _byte(handle, seconds))
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def keys_of(read: _Read) -> Iterator[str]:
    """Yield the keys of the bytes that `read` returns; sequences of other keys are left out."""
    while byte := read(None):
        if byte == _ESCAPE:
            yield from _sequence(read)
        elif byte in b"\r\n":
            yield "enter"
        else:
            yield _character(byte, read)


def _sequence(read: _Read) -> Iterator[str]:
    """Yield the key of a sequence, whose escape character is read."""
    kind = read(_PATIENCE)
    if kind not in (b"[", b"O"):
        yield "escape"
        if kind and kind != _ESCAPE:
            yield _character(kind, read)
        return
    rest = ""
    while len(rest) < _LONGEST and (byte := read(_PATIENCE)):
        rest += byte.decode("latin-1")
        if "@" <= rest[-1] <= "~":
            break
    if rest in _NAMES:
        yield _NAMES[rest]


def _character(first: bytes, read: _Read) -> str:
    """Return the character that begins with a byte; U+FFFD for bytes that are none."""
    size = next((n for n, least in ((4, 0xF0), (3, 0xE0), (2, 0xC0)) if first[0] >= least), 1)
    return (first + b"".join(read(_PATIENCE) for _ in range(size - 1))).decode("utf-8", "replace")[:1]


def _byte(handle: int, seconds: float | None) -> bytes:
    is_ready, _, _ = select.select([handle], [], [], seconds)
    return os.read(handle, 1) if is_ready else b""
