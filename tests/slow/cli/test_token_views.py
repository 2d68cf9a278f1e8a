"""Tokens as text and colours: numbers of records, levels over texts, --color."""

import os
import re
import subprocess

import pytest

from tests.cli.conftest import FAKE, command
from tests.helpers.quick import quick_gencli
from tests.helpers.terminals import begin, on_a_terminal, until_closed

pytest.importorskip("pty")
CODES = re.compile(r"\x1b\[[\d;]*m")

# Bytes of several characters, so that some are incomplete for a while, or for good.
WORDS = (
    "--quiet", "--max-tokens", "40", "--temperature", "3", "--allow-ids", "97,98,99,10,195,169,226,130,172",
)  # fmt: skip
TERMINAL = {"TERM": "xterm-256color", "NO_COLOR": ""}

TEXTS = [
    ("--seed", "7", "hi"),
    ("--stop", "abc", "--stop", "ba", "hi"),
    ("--include-stop", "--stop", "ab", "hi"),
    ("-n", "2", "hi", "yo"),
    ("--regex", "[a-c]{9}", "--constrain-after", "a", "hi"),
    ("--no-stream", "--draft", "ngram", "hi"),
    ("--beams", "2", "--temperature", "1", "hi"),
]


def shown(*words, **env):
    return on_a_terminal(command(*words), {**TERMINAL, **env}).decode().replace("\r\n", "\n")


def assert_a_text_is_what_a_pipe_gets(texts):
    for words in texts:
        base = [one for one in WORDS if "--beams" not in words or one not in ("--temperature", "3")]
        piped = subprocess.run(command(*base, *words), capture_output=True, check=True).stdout.decode()
        # Several texts are drawn live, which other tests look at.
        env = {"TERM": "dumb"} if "-n" in words else {}
        colored = shown(*base, *words, "--color", "probability", **env)
        if env:
            assert re.sub(r"[][<>*]", "", colored) == re.sub(r"[][<>*]", "", piped), words
        else:
            assert CODES.search(colored), words
            assert CODES.sub("", colored).endswith(piped), words


def test_without_its_colours_a_text_is_what_a_pipe_gets():
    assert_a_text_is_what_a_pipe_gets(TEXTS[:2])


def test_each_scale_colours_a_text():
    for scale in ["rank", "entropy", "decided"]:
        words = ("--max-tokens", "30", "--temperature", "2", "--top-k", "9", "hi", "--color", scale)
        text = shown(*words)
        assert CODES.search(text), scale
        assert "Colours: plain" in text, scale


def test_colours_beside_a_trace_are_those_without_it(tmp_path):
    words = ("--quiet", "--max-tokens", "30", "--temperature", "2", "--top-k", "9", "hi", "--color", "rank")
    assert shown(*words, "--trace", str(tmp_path / "t")) == shown(*words)


def test_without_colours_there_are_lines_and_without_lines_marks():
    words = ("--quiet", "--max-tokens", "30", "--temperature", "2", "hi", "--color", "rank")
    plain = shown(*words, NO_COLOR="1")
    assert (CODES.search(plain) is None, "38;5" in plain) == (False, False)
    assert "*" in shown(*words, TERM="dumb")

    assert "logprob" not in shown("--max-tokens", "9", "hi", "--color", "probability")
    prompt = shown("--max-tokens", "9", "hi", "--color", "probability", "--prompt-logprobs", "0")
    assert ("logprob" in prompt, "output:" in prompt) == (True, False)


def test_a_chat_has_log_probabilities_only_where_they_are_asked_for():
    def shown(*words):
        chat = [str(quick_gencli()), "chat", "--raw", *FAKE, "--max-tokens", "5", "--color", "rank", *words]
        process, leader = begin(chat, stdin=subprocess.PIPE, env={**os.environ, **TERMINAL})
        process.stdin.write(b"hi\nyo\n")
        process.stdin.close()
        text = until_closed(leader).decode()
        assert process.wait(timeout=60) == 0
        assert CODES.search(text)
        return text

    assert "logprob" not in shown()
    assert shown("--logprobs", "0").count("logprob") == 2
