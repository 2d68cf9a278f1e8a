"""When and why a sample ends, and what of its text is given out [42, 43, 44, 61, 62, 64, 65].

Stop strings and patterns [62, 63].
"""

from __future__ import annotations

import pickle
import random
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from gencli.core.request import Stops
from gencli.errors import GenerationError, UsageError
from gencli.text.text_stream import MAX_WINDOW, Delta, FinishReason, StopMatcher, StopRules, TextStream
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
    assert run(ids_of("hi", EOS)) == ("hi", FinishReason("eos", EOS, 2))

    assert run(ids_of("hi!x"), ids=(ord("!"),)) == ("hi", FinishReason("stop", ord("!"), 2))


def test_include_stop_shows_what_ended():
    # [64]
    for end, shown in [(EOS, "<eos>"), (BOS, "<bos>"), (ord("!"), "!")]:
        text, finish = run(ids_of("hi", end), ids=(BOS, ord("!")), include=True)
        assert (text, finish.matched, finish.offset) == ("hi" + shown, end, 2), end

    head, tail = "é".encode()
    assert run([head, tail], ids=(tail,), include=True) == ("é", FinishReason("stop", tail, 0))

    assert run(ids_of("one.two"), strings=(".",), include=True) == ("one.", FinishReason("stop", ".", 3))


def test_ends_that_come_together_have_an_order():
    # [61]
    assert run([EOS], ids=(EOS,))[1].reason == "eos"
    assert run(ids_of("a!"), ids=(ord("!"),), strings=("!",))[1] == FinishReason("stop", 33, 1)

    # [61]
    stream = start(strings=("b",), max_tokens=2)
    assert stream.push(ord("a"), grammar_end=False) == Delta("a")
    assert stream.push(ord("b"), grammar_end=True) == Delta("", FinishReason("stop", "b", 1))

    # [61]
    stream = start(max_tokens=1)
    assert stream.push(ord("}"), grammar_end=True) == Delta("}", FinishReason("grammar"))
    assert run(ids_of("aa"), max_tokens=2, loop=2) == ("aa", FinishReason("length"))
    assert run(ids_of("aa"), max_tokens=3, loop=2) == ("aa", FinishReason("loop"))


def test_a_stop_string_is_cut_and_reported_with_its_offset():
    # [61, 62]
    assert run(ids_of("one two\n\nthree"), strings=("\n\n",)) == ("one two", FinishReason("stop", "\n\n", 7))

    assert run(ids_of("你👩.x"), strings=(".",))[1].offset == 2

    assert run(ids_of("step 12"), patterns=(r"\d+",)) == ("step ", FinishReason("stop", "1", 5))

    # [62]
    text, finish = run(ids_of("ab", BOS, *b"cd", BOS, *b"x"), strings=("<bos>x",))
    assert (text, finish) == ("abcd", FinishReason("stop", "<bos>x", 4))


def test_min_tokens_suppresses_matches_that_complete_within_it():
    """[42]"""
    assert run(ids_of("a.b.c"), strings=(".",), min_tokens=2) == ("a.b", FinishReason("stop", ".", 3))
    assert run(ids_of("abab"), strings=("ab",), min_tokens=1) == ("", FinishReason("stop", "ab", 0))


def test_where_no_end_is_sought_and_stops_that_cannot_hold():
    # [46]
    stream = start(strings=("}",))
    assert stream.push(ord("}"), in_document=True) == Delta("}")
    assert stream.push(ord("}")) == Delta("", FinishReason("stop", "}", 1))

    # [43]
    assert run(ids_of("a", EOS, ord("b")), ignore_eos=True, max_tokens=3) == ("ab", FinishReason("length"))

    for stops in [{"strings": ("",)}, {"patterns": ("(",)}, {"patterns": ("a*",)}, {"loop": 1}, {"loop": -1}]:
        with pytest.raises(UsageError):
            StopRules(Stops(**stops))


def test_what_was_held_is_given_at_the_end():
    # [63, 65]
    assert run(ids_of("ab\n"), strings=("\n\n",), max_tokens=3) == ("ab\n", FinishReason("length"))
    assert run("a👩".encode(), max_tokens=3) == ("a\ufffd", FinishReason("length"))
    assert run("a👩".encode(), max_tokens=3, strings=("\ufffd",)) == ("a\ufffd", FinishReason("length"))

    for end in [EOS, 33]:
        text, finish = run(ids_of("a\n", 0xF0, end), strings=("\n\n",), ids=(33,))
        assert (text, finish.offset) == ("a\n\ufffd", 3), end

    for reason in ["interrupted", "length", "error"]:
        stream = start(strings=("\n\n",))
        assert stream.push(10) == Delta(""), reason
        assert stream.close(reason) == Delta("\n", FinishReason(reason)), reason
        assert stream.finish == FinishReason(reason), reason

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


def run_stops(text, cuts, strings=(), patterns=(), include=False):
    """Push `text` cut at `cuts`; return everything released and the match."""
    matcher = StopMatcher(strings, patterns, include)
    released = ""
    for start, end in pairwise([0, *sorted(cuts), len(text)]):
        released += matcher.push(text[start:end])
        assert text.startswith(released)
        if matcher.match:
            return released, matcher.match
    return released + matcher.flush(), None


def test_the_match_that_completes_earliest_wins():
    for strings, text, want in [
        (["abc", "ab"], "xabc", ("x", FinishReason("stop", "ab", 1))),
        (["aab"], "aaab", ("a", FinishReason("stop", "aab", 1))),
        (["b", "ab"], "xab", ("xa", FinishReason("stop", "b", 2))),
        (["ab", "b"], "xab", ("x", FinishReason("stop", "ab", 1))),
        (["abcd", "bc"], "abce", ("a", FinishReason("stop", "bc", 1))),
        (["ab", "ab"], "ab", ("", FinishReason("stop", "ab", 0))),
        (["👩‍👩"], "x👩‍👩y", ("x", FinishReason("stop", "👩‍👩", 1))),
    ]:
        for cuts in ([], range(len(text))):
            assert run_stops(text, cuts, strings) == want, strings


atoms = st.sampled_from(
    ["a", "b", r"\n", ".", "[^a]", r"\b", r"\B", "$", "(?m:^)", "(?<=b)", "(?!a)", "(?=ab)"]
)
repeats = st.sampled_from(["", "", "+", "?", "{2}", "*?"])
patterns = st.recursive(
    st.builds("{}{}".format, st.sampled_from(["a", "b", r"\n", ".", "[^a]"]), repeats) | atoms,
    lambda inner: st.builds("{}{}".format, inner, inner) | st.builds("(?:{}|{})".format, inner, inner),
    max_leaves=5,
)


def test_only_a_real_prefix_is_held_back():
    matcher = StopMatcher(["\n\nUser:"])
    chunks = ["one\n", "\n", "\nUse", "less ", "end\n"]
    assert [matcher.push(chunk) for chunk in chunks] == ["one", "", "\n", "\n\nUseless ", "end"]
    assert matcher.flush() == "\n"

    matcher = StopMatcher(patterns=[r"<\w+>"])
    assert [matcher.push(chunk) for chunk in ["a <b", "c d", "<e", ">"]] == ["a ", "<bc d", "", ""]
    assert matcher.match == FinishReason("stop", "<e>", 7)

    matcher = StopMatcher(patterns=[r"(?s)<.*>"])
    text = "<" + "a" * (2 * MAX_WINDOW)
    released = "".join(matcher.push(text[i : i + 64]) for i in range(0, len(text), 64))
    assert len(text) - len(released) <= MAX_WINDOW
    assert released + matcher.flush() == text


def test_a_match_in_unarmed_text_does_not_count_but_may_begin_there():
    # min_tokens: a match must complete after the minimum [42].
    matcher = StopMatcher(["ab"])
    assert matcher.push("xaba", armed=False) == "xab"
    assert matcher.push("b") == ""
    assert matcher.match == FinishReason("stop", "ab", 3)

    matcher = StopMatcher(patterns=["ab|ba{2}c"])
    assert matcher.push("xabaa", armed=False) == "xa"
    assert matcher.push("c") == ""
    assert matcher.match == FinishReason("stop", "baac", 2)


def test_hidden_text_is_searched_and_shown_only_as_part_of_a_match():
    matcher = StopMatcher(["d|>\nUser"])
    assert matcher.push("text") == "text"
    assert matcher.push("<|end|>", hidden=True) == ""
    assert matcher.push("\nUseful") == "\nUseful"
    assert matcher.push("<|end|>", hidden=True) + matcher.push("\nUser") == ""
    assert matcher.match == FinishReason("stop", "d|>\nUser", len("text\nUseful"))

    matcher = StopMatcher(["<|end|>\n"], include=True)
    assert matcher.push("a<") == "a"
    assert matcher.push("<|end|>", hidden=True) == "<"
    assert matcher.push("\nb") == "<|end|>\n"

    matcher = StopMatcher()
    assert (matcher.push("abc"), matcher.push("<s>", hidden=True), matcher.flush()) == ("abc", "", "")


def test_a_pattern_stops_where_it_first_completes_whatever_the_split():
    for patterns, text, want in [
        ([r"\d+"], "ab123", ("ab", FinishReason("stop", "1", 2))),
        ([r"\n(Human|AI):"], "hi\nHuma\nAI: x", ("hi\nHuma", FinishReason("stop", "\nAI:", 7))),
        ([r"b+c", r"c"], "abbc", ("a", FinishReason("stop", "bbc", 1))),
        ([r"c", r"b+c"], "abbc", ("abb", FinishReason("stop", "c", 3))),
        ([r"(?m)^#"], "a#\n#", ("a#\n", FinishReason("stop", "#", 3))),
        ([r"(?<=ab)c"], "cabc", ("cab", FinishReason("stop", "c", 3))),
        ([r"foo(?=bar)"], "foofoobar", ("foo", FinishReason("stop", "foo", 3))),
        ([r"(?i)STOP"], "dont stop", ("dont ", FinishReason("stop", "stop", 5))),
        ([r"^b"], "ab", ("ab", None)),
        ([r"\n\bUser"], "a\nUse\nUser", ("a\nUse", FinishReason("stop", "\nUser", 5))),
        ([r"a\B"], "xa ab", ("xa ", FinishReason("stop", "a", 3))),
        ([r"[\b]x"], "ax\bx", ("ax", FinishReason("stop", "\bx", 2))),
    ]:
        rng = random.Random(0)
        for _ in range(20):
            cuts = rng.choices(range(len(text)), k=rng.randint(0, len(text)))
            assert run_stops(text, cuts, patterns=patterns) == want, patterns

    assert run_stops("xab", [], ["b"], ["ab"]) == ("xa", FinishReason("stop", "b", 2))
    assert run_stops("xabc", [], ["c"], ["ab"]) == ("x", FinishReason("stop", "ab", 1))


def test_offsets_and_anchors_hold_far_into_a_text():
    matcher = StopMatcher(["end."], [r"(?<=a)b\w+d"])
    text = "a" * 5000 + "bxd"
    released = "".join(matcher.push(text[i : i + 7]) for i in range(0, len(text), 7))
    assert (released, matcher.match) == ("a" * 5000, FinishReason("stop", "bxd", 5000))

    matcher = StopMatcher(patterns=[r"^b", r"\Ab"])
    released = "".join(matcher.push(char) for char in "a" * 2000 + "b" * 2000)
    assert (matcher.match, len(released)) == (None, 4000)


def test_patterns_that_are_invalid_or_match_nothing_are_refused():
    for pattern in ["(", "[a", "*", "", "a*", "a|", "(?r)ab", "$"]:
        with pytest.raises(UsageError):
            StopMatcher(patterns=[pattern])

    with pytest.raises(UsageError, match="empty"):
        StopMatcher(["a", ""])

    for pattern in [
        "a{99999999}",
        "(?:(?:ab){1000}){1000}",
        "(a{1000}|b{1000}){60}",
        "(?x)(a{1000}) # x\n {1000}",
        "(a{1000})(?#x){1000}",
        "a{" + "9" * 5000 + "}",
    ]:
        with pytest.raises(UsageError, match="repeats too often"):
            StopMatcher(patterns=[pattern])

    for pattern in [r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", "[{9999999}]{3}b", r"\{99999999}", "b?a{0,99999999}b"]:
        StopMatcher(patterns=[pattern])


def test_what_a_character_is_compared_with_does_not_grow_with_the_text():
    matcher, sizes = StopMatcher(["ab" * 50 + "c"]), []
    for _ in range(40):
        for _ in range(200):
            matcher.push("abababab")
        sizes.append(len(pickle.dumps(matcher)))
    assert max(sizes) - min(sizes) < 16  # the digits of its counters


def test_a_pattern_that_is_slow_in_all_its_searches_together_is_an_error(monkeypatch):
    monkeypatch.setattr("gencli.text.text_stream._MAX_SECONDS", -1.0)
    monkeypatch.setattr("gencli.text.text_stream._PER_CHARACTER", 0.0)
    matcher = StopMatcher(patterns=[r"(.+)+\1{9}Z"])
    with pytest.raises(GenerationError, match="s in total on 1 characters"):
        matcher.push("abc")
