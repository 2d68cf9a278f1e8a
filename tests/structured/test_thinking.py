"""`--constrain-after`: thinking, and the rest, in one piece or as a stream."""

import pytest

from gencli.errors import ConfigError
from gencli.structured.output_spec import ThinkingSplit, ThinkingSplitter, split_thinking

MARKER = "<</think>"
TEXTS = ["", "a<b", "hm</think>{}", "hm<</think>{}", "<<</think></think><</think>x", "a<</thin", "<</think>"]


def test_the_first_marker_splits():
    for text, thinking, result in [
        ("hm</t>{}", "hm</t>", "{}"),
        ("</t></t>x", "</t>", "</t>x"),
        ("hm", "hm", ""),
        ("", "", ""),
    ]:
        assert split_thinking(text, "</t>") == ThinkingSplit(thinking, result), text


def test_a_stream_splits_as_the_whole_text():
    for text in TEXTS:
        for size in [1, 2, 3, 7]:
            splitter = ThinkingSplitter(MARKER)
            pieces = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)]
            pieces.append(splitter.finish())
            whole = ThinkingSplit(
                "".join(piece.thinking for piece in pieces), "".join(piece.result for piece in pieces)
            )
            assert whole == split_thinking(text, MARKER), (text, size)
            assert splitter.is_over == (MARKER in text), (text, size)


def test_only_what_may_begin_the_marker_is_held_back():
    for fed, shown in [("abc", "abc"), ("ab<", "ab"), ("ab<<", "ab"), ("<<<", "<"), ("<</thinx", "<</thinx")]:
        assert ThinkingSplitter(MARKER).feed(fed) == ThinkingSplit(shown), fed


def test_an_empty_marker_is_refused():
    with pytest.raises(ConfigError, match="marker to constrain after is empty"):
        ThinkingSplitter("")
