"""`gencli chat` on the bundled model, its turns from a pipe."""

import signal
import subprocess

import pytest

from tests.cli.conftest import gencli  # noqa: F401


@pytest.fixture
def talk(gencli):  # noqa: F811
    """Call `talk(lines, *flags)`."""
    return lambda lines, *flags: gencli("chat", *flags, stdin="".join(f"{x}\n" for x in lines).encode())


def test_a_line_with_two_slashes_is_a_turn_and_empty_lines_are_none(talk):
    result = talk(["", "//help", "  "], "-t", "0", "--max-tokens", "5")
    assert result.code == 0
    assert result.err.count("[prompt") == 1

    assert "The answer has 3 tokens" in talk(["Hi", "/why 999"], "--max-tokens", "3").err
    assert "has no answer from this session" in talk(["Hi", "/undo", "/why"], "--max-tokens", "3").err


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
        talk(lines, *flags).refused(said, code=code)


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
