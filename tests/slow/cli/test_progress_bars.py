"""Waits and drawings on a terminal: they replace each other, make room for text, and leave nothing."""

import io
import subprocess
import threading

from gencli.cli.progress_bars import ReadingLine
from gencli.cli.stderr import Waiting
from gencli.core.events import Reading, Token
from tests.cli.conftest import LETTERS, command
from tests.helpers.terminals import on_a_terminal

TERMINAL = {"TERM": "xterm", "NO_COLOR": ""}


def few(*arguments):
    """A run that ends soon."""
    return command(*LETTERS, "--max-tokens", "9", *arguments)


def test_beside_a_result_in_a_file_a_bar_moves_on_stderr(tmp_path):
    for flags, is_shown in [
        (("hi", "yo"), True),
        (("hi", "-n", "2", "--format", "jsonl"), True),
        (("hi", "yo", "--quiet"), False),
    ]:
        path = tmp_path / "out"
        with path.open("wb") as out:
            seen = on_a_terminal(few(*flags), TERMINAL, stdout=out)
        assert (b"0 of 2 done" in seen) == is_shown, flags
        assert (b"\x1b" in seen) == is_shown, flags
        assert b"\x1b" not in path.read_bytes(), flags


def test_nothing_is_said_of_what_is_short_or_shows_itself():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        seen = on_a_terminal(few("hi", "yo"), TERMINAL, stdout=cat.stdin)
        cat.stdin.close()
    assert b"done" not in seen

    done = subprocess.run(few("word " * 180 + "end"), capture_output=True, check=True)
    assert b"eading a prompt" not in done.stdout + done.stderr

    assert b"eading a prompt" not in on_a_terminal(few("hi"), TERMINAL)


def test_rows_on_a_terminal_have_a_bar_below_or_lines_of_their_own():
    many = few("-n", "3", "hi")
    assert b"of 3 done" in on_a_terminal(many, TERMINAL)
    assert b"done" not in on_a_terminal([*many, "--quiet"], TERMINAL)

    seen = on_a_terminal(few("hi", "yo", "--format", "jsonl"), TERMINAL)
    assert b"0 of 2 done" in seen
    assert seen.count(b'\x1b[?25h{"id": ') >= 1  # the bar is taken away before the line


def test_a_long_prompt_that_is_read_shows_on_a_terminal():
    for flags in [(), ("-n", "2"), ("--format", "json")]:
        seen = on_a_terminal(few(*flags, "word " * 180 + "end"), TERMINAL)
        assert b"eading a prompt: 0 of 903 tokens" in seen, flags
        quiet = on_a_terminal(few(*flags, "--quiet", "word " * 180 + "end"), TERMINAL)
        assert b"eading a prompt" not in quiet, flags


THINKING = (
    "--constrain-after", "b", "--choice", "yes", "--allow-ids", "97,98,99,101,115,121", "--max-tokens",
    "500",
)  # fmt: skip


def test_thinking_shows_on_a_terminal_as_it_is_made(tmp_path):
    for flags, is_live in [
        ((), True), (("--retries", "1"), False), (("-n", "2"), False), (("--quiet",), None),
    ]:  # fmt: skip
        with (tmp_path / "out").open("wb") as out:
            seen = on_a_terminal(command(*THINKING, *flags, "hi"), TERMINAL, stdout=out)
        assert seen.count(b"[thinking] ") == {None: 0}.get(is_live, 2 if "-n" in flags else 1), flags
        assert (b"done" in seen) is (is_live is False), flags
        assert b"b\r\n" in seen or is_live is None, flags


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
