"""What a run writes: text, blocks, records, the summary, notices."""

import subprocess

import pytest

from tests.cli.conftest import command
from tests.cli.test_progress_bars import screen
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


CALENDAR = '[{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]'


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(CALENDAR)
    return path


def test_tools_that_the_prompt_does_not_name_are_told(run, tools):
    said = "The prompt does not name the tools"
    short = ("--tools", tools, "--max-tokens", "3", "--seed", "1")
    assert said in run(*short, "hi").err
    assert said not in run(*short, "Call look_up.").err
    assert said not in run(*short, "--chat", "hi").err
    assert said not in run(*short, "--quiet", "hi").err
