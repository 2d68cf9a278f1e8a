"""`gencli chat` on the bundled model, its turns from a pipe."""

import os
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.cli.conftest import gencli  # noqa: F401


@pytest.fixture
def talk(gencli):  # noqa: F811
    """Call `talk(lines, *flags)`."""
    return lambda lines, *flags: gencli("chat", *flags, stdin="".join(f"{x}\n" for x in lines).encode())


def test_the_first_turn_is_what_a_run_of_it_says(talk, gencli):  # noqa: F811
    said = talk(["Hello!"], "--seed", "5", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.out == gencli("run", "--chat", "--seed", "5", "--quiet", "Hello!").out

    for form in [("--raw",), ()]:
        result = talk(["ab", "cd"], *form, "--model", "fake", "--allow-ids", "97,98", "--max-tokens", "4")
        assert result.code == 0, form
        assert [len(line) for line in result.out.splitlines()] == [4, 4], form


def test_turns_and_presets_keep_what_was_read(talk):
    result = talk(["My name is Mia.", "What is my name?"], "-t", "0")
    assert result.out.splitlines() == ["Nice to meet you, Mia!", "Your name is Mia."]
    assert "[prompt 27: 18 kept, 9 read;" in result.err

    lines = ["My name is Mia.", "/preset deterministic", "What is my name?"]
    result = talk(lines, "-t", "0.01", "--seed", "1")
    assert result.out.splitlines()[1] == "Your name is Mia."
    assert "[prompt 27: 18 kept, 9 read;" in result.err


def test_a_line_with_two_slashes_is_a_turn_and_empty_lines_are_none(talk):
    result = talk(["", "//help", "  "], "-t", "0", "--max-tokens", "5")
    assert result.code == 0
    assert result.err.count("[prompt") == 1

    assert "The answer has 3 tokens" in talk(["Hi", "/why 999"], "--max-tokens", "3").err
    assert "no answer that was given" in talk(["Hi", "/undo", "/why"], "--max-tokens", "3").err


def test_a_chat_without_a_terminal_ends_at_its_first_error(talk):
    for lines, flags, code, said in [
        (["/hepl"], (), 2, "Did you mean /help?"),
        (["/why"], (), 2, "no answer"),
        (["/color blue"], (), 2, "one of off, probability"),
        (["x " * 1100], (), 6, "/undo"),
        ([], ("--system", "x", "--raw"), 2, "--system"),
        ([], ("-n", "2"), 2, "-n"),
        (["/edit"], (), 2, "no turn yet"),
        (["/load none.json", "Hi"], (), 2, "none.json"),
    ]:
        result = talk(lines, *flags)
        assert (result.code, result.out) == (code, ""), lines
        assert said in result.err, lines


def test_notices_are_said_once_and_of_each_setting(talk):
    result = talk(["/set top-k 5", "/set temperature 0", "/set max-tokens 3", "/set max-tokens 4"])
    assert result.err.count("The draw is greedy") == 1

    result = talk(["/set top-k 5", "/set temperature 0"])
    assert "The draw is greedy, so these stages change nothing: top_k." in result.err

    said = talk(["Hello!", "Hello!"], "--seed", "1", "--max-tokens", "4", "--color", "rank")
    assert said.err.count("Notice: --color has no effect: stdout is no terminal.") == 1

    result = talk(["My name is Mia.", "/regen"], "-t", "0.01", "--seed", "1")
    assert result.out.splitlines()[0] == result.out.splitlines()[1]
    assert result.err.count("The same answer again") == 1


@pytest.fixture
def start(spawn):
    """Start a process of a raw chat, all its streams the same."""
    command = "chat --raw --model fake --allow-ids 97,98 --seed 1 --max-tokens 900".split()
    return lambda stream=subprocess.PIPE, **options: spawn(
        *command, stdin=stream, stdout=stream, stderr=stream, **options
    )


def test_ctrl_c_ends_a_chat_without_a_terminal_and_shows_what_there_is(start):
    process = start()
    process.stdin.write(b"hi\nagain\n")
    process.stdin.flush()
    first = process.stdout.read(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len((first + out).strip()) < 900
    assert b"interrupted]" in err


class Terminal:
    """What a terminal shows, read up to what is waited for."""

    def __init__(self, leader):
        self.leader, self.seen = leader, b""

    def until(self, wanted):
        while wanted not in self.seen:
            self.seen += os.read(self.leader, 4096)
        self.seen = self.seen.partition(wanted)[2]

    def type(self, keys):
        self.until(b"\x1b[0m>")
        os.write(self.leader, keys)


def test_on_a_terminal_ctrl_c_keeps_the_partial_turn_and_ctrl_d_leaves(start, tmp_path):
    import pty

    leader, follower = pty.openpty()
    env = {"XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    process = start(follower, env=env, start_new_session=True)
    os.close(follower)
    screen = Terminal(leader)
    screen.type(b"hi\nyou\x1b\rthere\r")  # Ctrl-J, Alt-Enter, Enter
    screen.until(b"ab")
    process.send_signal(signal.SIGINT)
    screen.until(b"interrupted]")
    screen.type(b"/hepl\r")
    screen.until(b"Did you mean /help?")
    screen.type(b"/tok\t")
    screen.until(b"ens")
    os.write(leader, b"\r")
    screen.until(b"tokens are used")
    screen.type(b"\x04")
    with suppress(OSError):
        screen.until(b"never")
    os.close(leader)
    assert process.wait(timeout=60) == 0
    assert "+hi\n+you\n+there\n" in (tmp_path / "gencli" / "chat-history").read_text()
