"""Tokens as text and colours: numbers of records, levels over texts, --color."""

import pytest

from tests.slow.cli.test_token_views import TEXTS, assert_a_text_is_what_a_pipe_gets

pytest.importorskip("pty")


def test_texts_of_every_kind_are_what_a_pipe_gets():
    assert_a_text_is_what_a_pipe_gets(TEXTS[2:])
