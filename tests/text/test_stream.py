"""When and why a sample ends, and what of its text is given out [42, 43, 44, 61, 62, 64, 65]."""

from __future__ import annotations

import pytest

from gencli.core.request import Stops
from gencli.errors import UsageError
from gencli.text.text_stream import Delta, Finish, StopRules, TextStream
from gencli.text.tokenizer import ByteTokenizer

BOS, EOS = 256, 257


def start(**rules):
    """A stream with these stops, and rules of StopRules."""
    stops = Stops(**{key: rules.pop(key) for key in Stops.__dataclass_fields__ if key in rules})
    rules.setdefault("eos_ids", frozenset({EOS}))
    return TextStream(ByteTokenizer().stream(), StopRules(stops, **rules))


def run(tokens, **rules):
    """Push tokens until the end; the joined text and the finish."""
    stream, text = start(**rules), ""
    for token_id in tokens:
        delta = stream.push(token_id)
        text += delta.text
        if delta.finish:
            return text, delta.finish
    return text + stream.close("interrupted").text, stream.finish


def ids_of(text, *more):
    return [*text.encode(), *more]


def test_an_id_ends_without_text_and_names_itself_and_its_offset():
    assert run(ids_of("hi", EOS)) == ("hi", Finish("eos", EOS, 2))

    assert run(ids_of("hi!x"), ids=(ord("!"),)) == ("hi", Finish("stop", ord("!"), 2))


def test_include_stop_shows_what_ended():
    # [64]
    for end, shown in [(EOS, "<eos>"), (BOS, "<bos>"), (ord("!"), "!")]:
        text, finish = run(ids_of("hi", end), ids=(BOS, ord("!")), include=True)
        assert (text, finish.matched, finish.offset) == ("hi" + shown, end, 2), end

    head, tail = "é".encode()
    assert run([head, tail], ids=(tail,), include=True) == ("é", Finish("stop", tail, 0))

    assert run(ids_of("one.two"), strings=(".",), include=True) == ("one.", Finish("stop", ".", 3))


def test_ends_that_come_together_have_an_order():
    # [61]
    assert run([EOS], ids=(EOS,))[1].reason == "eos"
    assert run(ids_of("a!"), ids=(ord("!"),), strings=("!",))[1] == Finish("stop", 33, 1)

    # [61]
    stream = start(strings=("b",), max_tokens=2)
    assert stream.push(ord("a"), grammar_end=False) == Delta("a")
    assert stream.push(ord("b"), grammar_end=True) == Delta("", Finish("stop", "b", 1))

    # [61]
    stream = start(max_tokens=1)
    assert stream.push(ord("}"), grammar_end=True) == Delta("}", Finish("grammar"))
    assert run(ids_of("aa"), max_tokens=2, loop=2) == ("aa", Finish("length"))
    assert run(ids_of("aa"), max_tokens=3, loop=2) == ("aa", Finish("loop"))


def test_a_stop_string_is_cut_and_reported_with_its_offset():
    # [61, 62]
    assert run(ids_of("one two\n\nthree"), strings=("\n\n",)) == ("one two", Finish("stop", "\n\n", 7))

    assert run(ids_of("你👩.x"), strings=(".",))[1].offset == 2

    assert run(ids_of("step 12"), patterns=(r"\d+",)) == ("step ", Finish("stop", "1", 5))

    # [62]
    text, finish = run(ids_of("ab", BOS, *b"cd", BOS, *b"x"), strings=("<bos>x",))
    assert (text, finish) == ("abcd", Finish("stop", "<bos>x", 4))


def test_min_tokens_suppresses_matches_that_complete_within_it():
    """[42]"""
    assert run(ids_of("a.b.c"), strings=(".",), min_tokens=2) == ("a.b", Finish("stop", ".", 3))
    assert run(ids_of("abab"), strings=("ab",), min_tokens=1) == ("", Finish("stop", "ab", 0))


def test_where_no_end_is_sought_and_stops_that_cannot_hold():
    # [46]
    stream = start(strings=("}",))
    assert stream.push(ord("}"), in_document=True) == Delta("}")
    assert stream.push(ord("}")) == Delta("", Finish("stop", "}", 1))

    # [43]
    assert run(ids_of("a", EOS, ord("b")), ignore_eos=True, max_tokens=3) == ("ab", Finish("length"))

    for stops in [{"strings": ("",)}, {"patterns": ("(",)}, {"patterns": ("a*",)}, {"loop": 1}, {"loop": -1}]:
        with pytest.raises(UsageError):
            StopRules(Stops(**stops))


def test_what_was_held_is_given_at_the_end():
    # [63, 65]
    assert run(ids_of("ab\n"), strings=("\n\n",), max_tokens=3) == ("ab\n", Finish("length"))
    assert run("a👩".encode(), max_tokens=3) == ("a\ufffd", Finish("length"))
    assert run("a👩".encode(), max_tokens=3, strings=("\ufffd",)) == ("a\ufffd", Finish("length"))

    for end in [EOS, 33]:
        text, finish = run(ids_of("a\n", 0xF0, end), strings=("\n\n",), ids=(33,))
        assert (text, finish.offset) == ("a\n\ufffd", 3), end

    for reason in ["interrupted", "length", "error"]:
        stream = start(strings=("\n\n",))
        assert stream.push(10) == Delta(""), reason
        assert stream.close(reason) == Delta("\n", Finish(reason)), reason
        assert stream.finish == Finish(reason), reason

    stream = start()
    for token_id in (ord("a"), EOS):
        stream.push(token_id)
    assert stream.num_tokens == 2


def test_a_fork_and_its_origin_go_their_own_ways():
    origin = start(strings=("stop",), patterns=(r"x\d",), loop=3)
    for byte in b"n\xc3":  # half of a letter is held
        assert origin.push(byte).text in ("n", "")
    texts = []
    for rest in (b"\xa9 stop!", b"\xa9ababab!", b"\xa9 x7"):
        fork, text = origin.fork(), ""
        for byte in rest:
            if fork.finish is None:
                text += fork.push(byte).text
        texts.append((text, fork.finish.reason))
    assert texts == [("é ", "stop"), ("éababab", "loop"), ("é ", "stop")]
    assert (origin.finish, origin.num_tokens) == (None, 2)
