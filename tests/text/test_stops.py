"""Stop strings and patterns [62, 63]."""

from __future__ import annotations

import pickle
import random
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from gencli.errors import GenerationError, UsageError
from gencli.text.text_stream import MAX_WINDOW, StopMatch, StopMatcher


def run(text, cuts, strings=(), patterns=(), include=False):
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
        (["abc", "ab"], "xabc", ("x", StopMatch("ab", 1))),
        (["aab"], "aaab", ("a", StopMatch("aab", 1))),
        (["b", "ab"], "xab", ("xa", StopMatch("b", 2))),
        (["ab", "b"], "xab", ("x", StopMatch("ab", 1))),
        (["abcd", "bc"], "abce", ("a", StopMatch("bc", 1))),
        (["ab", "ab"], "ab", ("", StopMatch("ab", 0))),
        (["👩‍👩"], "x👩‍👩y", ("x", StopMatch("👩‍👩", 1))),
    ]:
        for cuts in ([], range(len(text))):
            assert run(text, cuts, strings) == want, strings


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
    assert matcher.match == StopMatch("<e>", 7)

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
    assert matcher.match == StopMatch("ab", 3)

    matcher = StopMatcher(patterns=["ab|ba{2}c"])
    assert matcher.push("xabaa", armed=False) == "xa"
    assert matcher.push("c") == ""
    assert matcher.match == StopMatch("baac", 2)


def test_hidden_text_is_searched_and_shown_only_as_part_of_a_match():
    matcher = StopMatcher(["d|>\nUser"])
    assert matcher.push("text") == "text"
    assert matcher.push("<|end|>", hidden=True) == ""
    assert matcher.push("\nUseful") == "\nUseful"
    assert matcher.push("<|end|>", hidden=True) + matcher.push("\nUser") == ""
    assert matcher.match == StopMatch("d|>\nUser", len("text\nUseful"))

    matcher = StopMatcher(["<|end|>\n"], include=True)
    assert matcher.push("a<") == "a"
    assert matcher.push("<|end|>", hidden=True) == "<"
    assert matcher.push("\nb") == "<|end|>\n"

    matcher = StopMatcher()
    assert (matcher.push("abc"), matcher.push("<s>", hidden=True), matcher.flush()) == ("abc", "", "")


def test_a_pattern_stops_where_it_first_completes_whatever_the_split():
    for patterns, text, want in [
        ([r"\d+"], "ab123", ("ab", StopMatch("1", 2))),
        ([r"\n(Human|AI):"], "hi\nHuma\nAI: x", ("hi\nHuma", StopMatch("\nAI:", 7))),
        ([r"b+c", r"c"], "abbc", ("a", StopMatch("bbc", 1))),
        ([r"c", r"b+c"], "abbc", ("abb", StopMatch("c", 3))),
        ([r"(?m)^#"], "a#\n#", ("a#\n", StopMatch("#", 3))),
        ([r"(?<=ab)c"], "cabc", ("cab", StopMatch("c", 3))),
        ([r"foo(?=bar)"], "foofoobar", ("foo", StopMatch("foo", 3))),
        ([r"(?i)STOP"], "dont stop", ("dont ", StopMatch("stop", 5))),
        ([r"^b"], "ab", ("ab", None)),
        ([r"\n\bUser"], "a\nUse\nUser", ("a\nUse", StopMatch("\nUser", 5))),
        ([r"a\B"], "xa ab", ("xa ", StopMatch("a", 3))),
        ([r"[\b]x"], "ax\bx", ("ax", StopMatch("\bx", 2))),
    ]:
        rng = random.Random(0)
        for _ in range(20):
            cuts = rng.choices(range(len(text)), k=rng.randint(0, len(text)))
            assert run(text, cuts, patterns=patterns) == want, patterns

    assert run("xab", [], ["b"], ["ab"]) == ("xa", StopMatch("b", 2))
    assert run("xabc", [], ["c"], ["ab"]) == ("x", StopMatch("ab", 1))


def test_offsets_and_anchors_hold_far_into_a_text():
    matcher = StopMatcher(["end."], [r"(?<=a)b\w+d"])
    text = "a" * 5000 + "bxd"
    released = "".join(matcher.push(text[i : i + 7]) for i in range(0, len(text), 7))
    assert (released, matcher.match) == ("a" * 5000, StopMatch("bxd", 5000))

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
