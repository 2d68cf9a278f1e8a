"""On a terminal no text of others is obeyed: each command is walked through with one hostile text."""

import pytest

from tests.cli.terminal.test_terminal import WALK, folder
from tests.slow.cli.terminal.test_terminal import assert_nothing_is_obeyed

pytest.importorskip("pty")


def test_no_command_lets_the_terminal_obey_a_foreign_text(folder):
    for words in WALK:
        assert_nothing_is_obeyed(words, folder)
