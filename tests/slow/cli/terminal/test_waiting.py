"""A line that moves while nothing else can be shown, and leaves nothing behind."""

import io
import threading

from gencli.cli.progress_bars import ReadingLine
from gencli.cli.stderr import Waiting
from gencli.core.events import Reading, Token


class Stream(io.StringIO):
    """Knows when something is written to it."""

    def __init__(self):
        super().__init__()
        self.is_written = threading.Event()

    def flush(self):
        self.is_written.set()

    def next(self):
        self.is_written.clear()
        assert self.is_written.wait(60)
        return self.getvalue()


def test_a_long_wait_is_shown_moves_and_is_erased():
    stream = Stream()
    with Waiting(stream) as waiting:
        waiting.show("Loading a\x1b[2Jname")
        assert "Loading a\\x1b[2Jname .   0:0" in stream.next()
        waiting.show("Reading")
        while "Reading .." not in stream.next():
            pass
    assert stream.getvalue().endswith("\r\x1b[2K")

    stream = Stream()
    waiting = Waiting(stream)
    for _ in range(2):
        waiting.show("Starting")
        waiting.close()
    assert stream.getvalue() == ""


def test_the_prompt_is_shown_until_its_first_token():
    stream = Stream()
    waiting = Waiting(stream)
    line = ReadingLine(waiting)
    line.add(Reading("1", 0, 512, 901))
    assert "Reading a prompt: 512 of 901 tokens" in stream.next()
    line.add(Token("1", 0, "a", (7,)))
    assert stream.getvalue().endswith("\r\x1b[2K")
    line.close()
