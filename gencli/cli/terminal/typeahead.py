"""Keys that are typed while nothing reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from gencli.cli.terminal.render import is_terminal

__all__ = ["type_ahead"]


@contextmanager
def type_ahead() -> Iterator[None]:
    """Keep keys for the next line that is read: unseen, and with Enter as itself.

    A terminal would show them inside an answer, and would turn Enter into the line feed of Ctrl-J. Ctrl-C
    interrupts as before. Without a terminal nothing changes.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or find_spec("termios") is None:
        yield
        return
    import termios

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    quiet = [*before]
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        termios.tcsetattr(handle, termios.TCSADRAIN, quiet)
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
