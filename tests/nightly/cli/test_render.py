"""What a terminal and a pipe get: tables, wrapped words, lines of messages; hostile text is not obeyed."""

import pytest

from tests.cli.test_render import WALK, folder
from tests.slow.cli.test_render import assert_nothing_is_obeyed

pytest.importorskip("pty")


def test_no_command_lets_the_terminal_obey_a_foreign_text(folder):
    for words in WALK:
        assert_nothing_is_obeyed(words, folder)
