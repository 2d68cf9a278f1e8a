"""What a wait shows: a bar on a terminal, at most a line elsewhere, nothing with --quiet."""

import subprocess

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
