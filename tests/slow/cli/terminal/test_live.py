"""Several texts on a terminal: lines while they are made, and in the end what a pipe has."""

import subprocess

from tests.cli.conftest import command
from tests.cli.terminal.test_drawing import screen
from tests.helpers.terminals import on_a_terminal

TEXTS = ("--max-tokens", "30", "--allow-ids", "97,98,32,10,256", "--quiet")


def test_blocks_on_a_terminal_are_the_blocks_of_a_pipe(screen):
    for flags in [("hi", "-n", "5"), ("hi", "yo", "-n", "2"), ("hi", "yo", "you")]:
        shown = command(*TEXTS, *flags)
        piped = subprocess.run(shown, capture_output=True, check=True).stdout.decode()
        terminal = type(screen)()
        terminal.width = 10_000
        terminal.write(on_a_terminal(shown, {"TERM": "xterm", "NO_COLOR": ""}).decode())
        assert terminal.text.splitlines() == piped.rstrip().splitlines(), flags
