"""Keys of a terminal, one at a time."""

from __future__ import annotations

import os
import select
import sys
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from gencli.cli.render import is_terminal
from gencli.errors import UsageError

_PATIENCE = 0.05  # seconds in which the rest of a key's sequence follows its escape character
_Read = Callable[[float | None], bytes]  # returns the next byte; b"" after this many seconds, and at the end


def read_keys() -> Generator[str, None, None]:
    """Return the keys pressed from now on, until the input ends: names of keys, or characters.

    Names are up, down, left, right, home, end, enter and escape. Closing the generator restores the terminal.
    Raises UsageError if stdin is not a terminal.
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
        tty.setcbreak(handle, termios.TCSADRAIN)  # keys typed before are read too
        yield ""
        yield from keys_of(lambda t: os.read(handle, 1) if select.select([handle], [], [], t)[0] else b"")
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def keys_of(read: _Read) -> Iterator[str]:
    """Yield the keys of the bytes that `read` returns."""
    presses = deque[KeyPress]()
    parser, decoder = Vt100Parser(presses.append), getincrementaldecoder("utf-8")("replace")
    while byte := read(None):
        parser.feed(decoder.decode(byte))
        while not presses and (byte := read(_PATIENCE)):
            parser.feed(decoder.decode(byte))
        parser.feed(decoder.decode(b"", final=True))
        parser.flush()  # an escape character without a sequence is a key itself
        while presses:
            pressed = presses.popleft().key
            key = pressed.value if isinstance(pressed, Keys) else pressed
            yield "enter" if key in ("c-m", "c-j") else key
