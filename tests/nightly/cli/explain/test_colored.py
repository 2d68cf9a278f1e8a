"""gencli run --color: the text with colours is the text, and options that leave no colour are named."""

import pytest

from tests.slow.cli.explain.test_colored import TEXTS, assert_a_text_is_what_a_pipe_gets

pytest.importorskip("pty")


def test_texts_of_every_kind_are_what_a_pipe_gets():
    assert_a_text_is_what_a_pipe_gets(TEXTS[2:])
