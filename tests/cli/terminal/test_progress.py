"""What a wait shows: a bar on a terminal, at most a line elsewhere, nothing with --quiet."""

import subprocess

import pytest

from gencli.cli.terminal.stderr import Stderr
from gencli.cli.terminal.thinking import LiveThinking
from gencli.core.events import Token
from tests.cli.conftest import LETTERS, command
from tests.helpers.terminals import on_a_terminal

TERMINAL = {"TERM": "xterm", "NO_COLOR": ""}


def few(*arguments):
    """A run that ends soon."""
    return command(*LETTERS, "--max-tokens", "9", *arguments)


@pytest.mark.parametrize(
    ("total", "is_quiet", "said"),
    [(2 * 10**9, False, "Loading big, 2.0 GB ...\n"), (10**6, False, ""), (2 * 10**9, True, "")],
    ids=["large", "small", "quiet"],
)
def test_off_a_terminal_only_large_weights_are_spoken_of_in_one_line(capsys, total, is_quiet, said):
    with Stderr(is_quiet=is_quiet).loading("big") as on_bytes:
        for done in (0, total // 2, total):
            on_bytes(done, total)
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("flags", "is_shown"),
    [
        (("hi", "yo"), True),
        (("hi", "-n", "2", "--format", "jsonl"), True),
        (("hi", "yo", "--quiet"), False),
    ],
    ids=["blocks", "records", "quiet"],
)
def test_beside_a_result_in_a_file_a_bar_moves_on_stderr(tmp_path, flags, is_shown):
    path = tmp_path / "out"
    with path.open("wb") as out:
        seen = on_a_terminal(few(*flags), TERMINAL, stdout=out)
    assert (b"0 of 2 done" in seen) == is_shown
    assert (b"\x1b" in seen) == is_shown
    assert b"\x1b" not in path.read_bytes()


def test_a_text_that_streams_into_a_pipe_shows_itself():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        seen = on_a_terminal(few("hi", "yo"), TERMINAL, stdout=cat.stdin)
        cat.stdin.close()
    assert b"done" not in seen


def test_records_on_the_terminal_of_the_bar_stand_on_lines_of_their_own():
    seen = on_a_terminal(few("hi", "yo", "--format", "jsonl"), TERMINAL)
    assert b"0 of 2 done" in seen
    assert seen.count(b'\x1b[?25h{"id": ') >= 1  # the bar is taken away before the line


def test_rows_on_a_terminal_have_a_bar_below_unless_quiet():
    many = few("-n", "3", "hi")
    assert b"of 3 done" in on_a_terminal(many, TERMINAL)
    assert b"done" not in on_a_terminal([*many, "--quiet"], TERMINAL)


@pytest.mark.parametrize("flags", [(), ("-n", "2"), ("--format", "json")], ids=["one", "several", "record"])
def test_a_long_prompt_that_is_read_shows_on_a_terminal(flags):
    seen = on_a_terminal(few(*flags, "word " * 180 + "end"), TERMINAL)
    assert b"eading a prompt: 0 of 903 tokens" in seen
    quiet = on_a_terminal(few(*flags, "--quiet", "word " * 180 + "end"), TERMINAL)
    assert b"eading a prompt" not in quiet


def test_off_a_terminal_nothing_is_said_of_reading():
    done = subprocess.run(few("word " * 180 + "end"), capture_output=True, check=True)
    assert b"eading a prompt" not in done.stdout + done.stderr


def test_short_prompts_show_no_reading():
    assert b"eading a prompt" not in on_a_terminal(few("hi"), TERMINAL)


THINKING = (
    "--constrain-after",
    "b",
    "--choice",
    "yes",
    "--allow-ids",
    "97,98,99,101,115,121",
    "--max-tokens",
    "500",
)


@pytest.mark.parametrize(
    ("flags", "is_live"),
    [((), True), (("--retries", "1"), False), (("-n", "2"), False), (("--quiet",), None)],
    ids=["one", "retries", "several", "quiet"],
)
def test_thinking_shows_on_a_terminal_as_it_is_made(tmp_path, flags, is_live):
    with (tmp_path / "out").open("wb") as out:
        seen = on_a_terminal(command(*THINKING, *flags, "hi"), TERMINAL, stdout=out)
    assert seen.count(b"[thinking] ") == {None: 0}.get(is_live, 2 if "-n" in flags else 1)
    assert (b"done" in seen) is (is_live is False)
    assert b"b\r\n" in seen or is_live is None


def test_live_thinking_ends_its_line_where_the_marker_ends_it(capsys):
    shown = LiveThinking("</t>")
    for text in ("\n", "so ", "it </", "t>", "{}"):
        shown.add(Token("1", 0, text, ()))
    assert capsys.readouterr() == ("", "[thinking] so it </t>\n")
