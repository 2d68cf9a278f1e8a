"""What a terminal and a pipe get: tables, wrapped words, lines of messages; hostile text is not obeyed."""

import os
import re
import subprocess
import unicodedata

import pytest

from tests.cli.test_render import FAKE, HOSTILE, WALK, folder
from tests.helpers.quick import quick_gencli
from tests.helpers.terminals import begin, until_closed

pytest.importorskip("pty")
OURS = re.compile(r"\x1b\[(\?\d+[lh]|2K|J|\d*A|[\d;]*m)|\r\n|\r(?!W)")
EXIT_CODES = (0, 2, 3, 4, 5, 6, 7)


def shown(arguments, folder, *, stdin=b""):
    """What the command line writes to a terminal that is its stdout and stderr."""
    process, leader = begin(
        [quick_gencli(), *arguments],
        stdin=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200", "VISUAL": HOSTILE},
    )
    process.stdin.write(stdin)
    process.stdin.close()
    output = until_closed(leader).decode()
    assert process.wait(timeout=60) in EXIT_CODES
    return output


def obeyed(output):
    """The characters that the terminal would obey, without those of gencli's own drawings."""
    rest = OURS.sub("", output.replace("\x1b[35;7;53m", "\x1b"))
    return [char for char in rest if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"]


def assert_nothing_is_obeyed(words, folder, most=None):
    """Walk through a command with all of its lines, or with the first ones."""
    output = "".join(shown([*words.split(), *arguments], folder) for arguments in WALK[words][:most])
    assert obeyed(output) == [], (words, output)
    if words not in ("doctor", "config path", "config schema"):
        assert "pwn" in output, words
    assert "Traceback" not in output, words


def test_a_text_a_trace_and_a_name_of_a_file_are_not_obeyed(folder):
    for words, most in (("run", 4), ("explain", 1), ("config lint", 1)):
        assert_nothing_is_obeyed(words, folder, most)


def test_a_chat_obeys_neither_what_is_typed_nor_what_is_answered(folder):
    call = ["chat", *FAKE, "--choice", HOSTILE, "--max-tokens", "200", "--color", "rank"]
    env = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(folder)}
    process, leader = begin(
        [quick_gencli(), *call], ("stdin", "stdout", "stderr"), cwd=folder, env={**os.environ, **env}
    )
    paste = HOSTILE.replace("\r", "")
    turns = (f"\x1b[200~{paste}\x1b[201~\r", "/edit\r", "\x15\x04")
    output = ""
    for turn in turns:
        seen = ""
        while not re.search(r"\x1b\[\?2004h.*\x1b\[\?25h$", seen, re.DOTALL):  # a new input line
            seen += os.read(leader, 65536).decode(errors="replace")
        output += seen
        os.write(leader, turn.encode())
    output += until_closed(leader).decode()
    assert process.wait(timeout=60) == 0
    plain = re.sub(r"\x1b\[[\d;]*m", "", output.replace("\x1b[35;7;53m", "foreign"))  # tokens have colours
    assert plain.count("pwn") >= 3  # typed, answered, edited
    for foreign in ("\x1b]52", "\x1b]0;pwn", "foreign", "\x9b", "\u202e", "\u2066", "\u200b"):
        assert foreign not in plain
