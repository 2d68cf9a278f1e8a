"""`--constrain-after`: thinking, and the rest, in one piece or as a stream."""

import pytest

from gencli.errors import ConfigError
from gencli.structured.validate.thinking import Pieces, ThinkingSplitter, split_thinking

MARKER = "<</think>"
TEXTS = ["", "a<b", "hm</think>{}", "hm<</think>{}", "<<</think></think><</think>x", "a<</thin", "<</think>"]


@pytest.mark.parametrize(
    ("text", "thinking", "rest"),
    [("hm</t>{}", "hm</t>", "{}"), ("</t></t>x", "</t>", "</t>x"), ("hm", "hm", ""), ("", "", "")],
)
def test_the_first_marker_splits(text, thinking, rest):
    assert split_thinking(text, "</t>") == Pieces(thinking, rest)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_stream_splits_as_the_whole_text(text, size):
    splitter = ThinkingSplitter(MARKER)
    pieces = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)]
    pieces.append(splitter.finish())
    whole = Pieces("".join(piece.thinking for piece in pieces), "".join(piece.rest for piece in pieces))
    assert whole == split_thinking(text, MARKER)
    assert splitter.is_over == (MARKER in text)


@pytest.mark.parametrize(
    ("fed", "shown"), [("abc", "abc"), ("ab<", "ab"), ("ab<<", "ab"), ("<<<", "<"), ("<</thinx", "<</thinx")]
)
def test_only_what_may_begin_the_marker_is_held_back(fed, shown):
    assert ThinkingSplitter(MARKER).feed(fed) == Pieces(shown)


def test_an_empty_marker_is_refused():
    with pytest.raises(ConfigError, match="marker to constrain after is empty"):
        ThinkingSplitter("")
