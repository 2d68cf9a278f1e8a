"""Levels spread over texts: the pieces of a text are the text, each with the level of its token."""

from gencli.cli.token_colors import Shades
from gencli.core.events import Alternative, Token, TokenLogprobs
from gencli.text.tokenizer import ByteTokenizer

LIKELY, UNLIKELY = -0.1, -9.0


def shades(**options):
    return Shades(ByteTokenizer().stream(), "probability", **options)


def tokens(text, *logprobs):
    """An event with the bytes of the text as tokens, and their log-probabilities."""
    ids = tuple(text if isinstance(text, bytes) else text.encode())
    entries = tuple(TokenLogprobs(Alternative(0, one, one), 1, 1) for one in logprobs)
    return Token("1", 0, "", ids, entries)


def test_a_piece_has_the_level_of_its_token():
    some = shades()
    some.add(tokens("ab", LIKELY, UNLIKELY))
    assert [*some.spans("ab\n")] == [("a", 0), ("b", 3), ("\n", 0)]

    some = shades()
    some.add(tokens("abc", LIKELY, UNLIKELY, LIKELY))
    assert [*some.spans("a")] == [("a", 0)]
    assert [*some.spans("b")] == [("b", 3)]
    assert [*some.spans("")] == []
    assert [*some.spans("c")] == [("c", 0)]

    some = shades()
    some.add(tokens("\u00e9", LIKELY, UNLIKELY))
    assert [*some.spans("\u00e9")] == [("\u00e9", 3)]

    some = shades()
    some.add(tokens(b"a\xe2", UNLIKELY))
    assert [*some.spans("a\ufffd<eos>\n")] == [("a", 3), ("\ufffd<eos>\n", 0)]


def test_thinking_and_attempts_have_their_own_levels():
    some = shades(after="#")
    some.add(tokens("4#\n4", *[UNLIKELY] * 3, LIKELY))
    assert [*some.spans("4\n")] == [("4", 0), ("\n", 0)]

    some = shades()
    some.add(tokens("ab", UNLIKELY, UNLIKELY))
    some.add(tokens("ab", LIKELY, UNLIKELY))
    some.keep(2)
    assert [*some.spans("ab")] == [("a", 0), ("b", 3)]
