"""`gencli chat` on the bundled model, its turns from a pipe."""

import os
import signal
from contextlib import suppress

from tests.chat.test_chat import start, talk
from tests.cli.conftest import gencli


def test_a_transcript_that_is_loaded_goes_on_identically(talk, tmp_path):
    first, then = ["My name is Mia.", "/set top-p 0.95"], ["Tell me a sad story.", "/regen"]
    whole = talk([*first, *then], "--seed", "11", "--max-tokens", "40").out
    talk([*first, f"/save {tmp_path / 'a.json'}"], "--seed", "11", "--max-tokens", "40")
    rest = talk([f"/load {tmp_path / 'a.json'}", *then])
    assert rest.out == whole.split("\n", 1)[1]
    story, again = rest.out.splitlines()[0], rest.out.splitlines()[-1]
    assert story != again


def test_why_explains_an_answer_as_the_trace_of_its_run_does(talk, gencli, tmp_path):
    words = ("--seed", "11", "-t", "1.4", "--top-k", "30", "--max-tokens", "25")
    gencli("run", "--chat", *words, "--trace", tmp_path / "t", "Tell me a sad story.")
    whole, one = gencli("explain", tmp_path / "t").out, gencli("explain", tmp_path / "t", "--at", "9").out
    plain = talk(["Tell me a sad story.", "Why?"], *words)
    asked = talk(["Tell me a sad story.", "/why", "/set top-k 2", "/why 9", "/set top-k 30", "Why?"], *words)
    assert (asked.code, asked.out) == (0, plain.out)
    assert whole in asked.err
    assert one in asked.err
    kept = [line.split(";")[0] for line in plain.err.splitlines() if line.startswith("[prompt")]
    assert [line.split(";")[0] for line in asked.err.splitlines() if line.startswith("[prompt")] == kept


def test_the_first_turn_is_what_a_run_of_it_says(talk, gencli):
    said = talk(["Hello!"], "--seed", "5", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.out == gencli("run", "--chat", "--seed", "5", "--quiet", "Hello!").out

    for form in [("--raw",), ()]:
        result = talk(["ab", "cd"], *form, "--model", "fake", "--allow-ids", "97,98", "--max-tokens", "4")
        assert result.code == 0, form
        assert [len(line) for line in result.out.splitlines()] == [4, 4], form


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


def test_lines_typed_ahead_are_turns_and_an_edited_turn_stays_until_another_is_sent(start, tmp_path):
    import pty

    leader, follower = pty.openpty()
    env = {"XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    process = start(follower, env=env, start_new_session=True)
    os.close(follower)
    screen = Terminal(leader)
    screen.type(b"one\r")
    screen.until(b"ab")
    os.write(leader, b"two\r")  # while the model answers
    process.send_signal(signal.SIGINT)
    screen.until(b"interrupted]")
    screen.until(b"two")  # on the input line, and not in the first answer
    screen.until(b"ab")
    process.send_signal(signal.SIGINT)
    screen.until(b"interrupted]")
    screen.type(b"/edit\r")
    screen.until(b"Enter replaces it, Ctrl-C keeps it.")
    screen.type(b"\x03")
    screen.type(b"/history\r")
    screen.until(b"[1] one")
    screen.until(b"[2] two")
    screen.type(b"\x04")
    with suppress(OSError):
        screen.until(b"never")
    os.close(leader)
    assert process.wait(timeout=60) == 0
    assert (tmp_path / "gencli" / "chat-history").read_text().count("+two\n") == 1


def test_turns_and_presets_keep_what_was_read(talk):
    result = talk(["My name is Mia.", "What is my name?"], "-t", "0")
    assert result.out.splitlines() == ["Nice to meet you, Mia!", "Your name is Mia."]
    assert "[prompt 27: 18 kept, 9 read;" in result.err

    lines = ["My name is Mia.", "/preset deterministic", "What is my name?"]
    result = talk(lines, "-t", "0.01", "--seed", "1")
    assert result.out.splitlines()[1] == "Your name is Mia."
    assert "[prompt 27: 18 kept, 9 read;" in result.err
