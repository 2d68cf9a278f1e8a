"""Tokens as text and colours: numbers of records, levels over texts, --color."""

import pytest

from gencli.cli.token_colors import Shades
from gencli.cli.token_views import one_token, probability, quoted
from gencli.core.events import Alternative, Token, TokenLogprobs
from gencli.explain.token_record import level
from gencli.text.tokenizer import ByteTokenizer


def test_numbers_and_texts_are_short_and_plain():
    for p, shown in [
        (1.0, "1.000"), (0.372, ".372"), (0.00042, ".0004"), (2e-5, "2e-05"), (0.0, "0"), (None, "-"),
    ]:  # fmt: skip
        assert probability(p) == shown, p

    assert quoted(' a\n"') == '" a\\n\\""'
    assert quoted("\x1b[1m") == '"\\x1b[1m"'
    assert len(quoted("x" * 100)) == 26

    assert [level("probability", p) for p in (0.9, 0.5, 0.3, 0.05, 0.001, None)] == [0, 0, 1, 2, 3, 3]


def record(**stage):
    """A record of one stage."""
    place = {"p": 0.5, "rank": 1, "logit": 0.0, "entropy": 1.0, "top": [[1, "x", 0.5]], "others": 0.5}
    usual = {"name": "dry", "params": "dry=1", "acted": True, "alive": [9, 9], "mass_kept": 1.0}
    lists = {"removed": [], "changed": [], "note": "", "why_not": ""}
    draw = {"kind": "gumbel", "margin": None, "runner_up": None}
    token = {"pos": 0, "id": 1, "text": "x", "surprise": 1.0, "decided_by": [], "forgone": None, "draw": draw}
    whole = {**place, "alive": 9}
    return {**token, "raw": whole, "final": whole, "stages": [{**usual, **place, **lists, **stage}]}


def test_what_a_stage_says_of_itself_is_shown_on_one_line():
    for stage, shown in [
        ({"changed": [[1, " sea", 4.04, 3.68]], "note": "seen 2x"}, '" sea" 4.04 -> 3.68 (seen 2x)'),
        ({"changed": [[1, " sea", 4.04, 3.68]]}, '" sea" 4.04 -> 3.68'),
        ({"note": "mu 10.00 bits"}, "mu 10.00 bits"),
        ({"acted": False, "why_not": "no tail repeats"}, "no tail repeats"),
        ({"acted": False, "note": "rolled 0.72", "why_not": "too high"}, "rolled 0.72, too high"),
        ({"acted": False}, "changed nothing"),
        ({"note": 'repeats "a\nb\x1b[2J\u202e"'}, 'repeats "a\\nb\\x1b[2J\\u202e"'),
    ]:
        line = next(line for line in one_token(record(**stage)).splitlines() if line.startswith("dry"))
        assert line.endswith(f"  {shown}"), stage


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


pytest.importorskip("pty")


def test_where_there_are_no_colours_a_notice_says_so(run, tmp_path):
    for words, reason in [
        ((), "stdout is no terminal"),
        (("--format", "jsonl"), "--format jsonl writes records"),
        (("--output", "FILE"), "the result goes to a file"),
    ]:
        words = [tmp_path / "out" if one == "FILE" else one for one in words]
        found = run("--max-tokens", "3", "--color", "rank", "hi", *words)
        assert found.code == 0, words
        assert f"Notice: --color has no effect: {reason}." in found.err, words


def test_what_cannot_be_coloured_is_refused_by_name(run):
    for words in [
        ("--color", "rank", "--finish-open", "--json"),
        ("--color", "rank", "--parsed", "--json"),
        ("--color", "decided", "--beams", "2"),
        ("--color", "entropy", "--best-of", "2", "--temperature", "1"),
        ("--color", "rank", "--max-tokens", "0", "--prompt-logprobs", "1"),
    ]:
        run("hi", *words).refused("--color", words[2])
