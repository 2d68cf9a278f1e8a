"""When and why a sample ends, and what of its text is given out [42, 43, 44, 61, 62, 64, 65].

Stop strings and patterns [62, 63].
"""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gencli.errors import GenerationError, UsageError
from gencli.text.text_stream import MAX_PERIOD, FinishReason, LoopDetector, StopMatcher
from gencli.text.tokenizer import ByteTokenizer
from tests.text.test_text_stream import patterns, run, run_stops


def test_joined_deltas_are_the_decoded_text_cut_at_the_first_stop():
    """[63]"""
    rng, tokenizer = random.Random(0), ByteTokenizer()
    for _ in range(500):
        text = "".join(rng.choices(["a", "b", "é", "👩‍👩", "ส", " "], k=12))
        ends = [text[:i] for i in range(len(text) + 1) if text[:i].endswith(("ab", "éb"))]
        got, _ = run(tokenizer.encode(text), strings=("ab", "éb"))
        assert got == (ends[0][:-2] if ends else text)


def is_loop(ids, times):
    """The plain definition of a loop."""
    periods = range(1, MAX_PERIOD + 1)
    return any(len(ids) >= p * times and ids[-p * times :] == ids[-p:] * times for p in periods)


def test_loops_are_found_as_soon_as_they_complete():
    for times in [2, 3, 5]:
        rng = random.Random(times)
        for _ in range(200):
            detector, ids = LoopDetector(times), []
            for _ in range(40):
                ids.append(rng.choice(ids[-3:]) if ids and rng.random() < 0.8 else rng.randrange(4))
                assert detector.push(ids[-1]) == is_loop(ids, times), times

    for period in (1, 2, MAX_PERIOD, MAX_PERIOD + 1):
        detector = LoopDetector(3)
        found = [detector.push(i % period) for i in range(4 * period)]
        assert found.count(True) == (period + 1 if period <= MAX_PERIOD else 0)
        assert period > MAX_PERIOD or found.index(True) == 3 * period - 1


many = settings(max_examples=120)  # nightly has more


def reference(text, strings, include=False):
    """The plain definition: try every end, then every string in order."""
    for end in range(1, len(text) + 1):
        for string in strings:
            if text[:end].endswith(string):
                start = end - len(string)
                return text[: end if include else start], FinishReason("stop", string, start)
    return text, None


@st.composite
def split_texts(draw):
    text = draw(st.text("ab\n", max_size=24))
    return text, draw(st.lists(st.integers(0, len(text)), max_size=8))


stop_lists = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=4)


@many
@given(split_texts(), stop_lists, st.booleans())
def test_every_split_gives_what_plain_search_gives(split, strings, include):
    text, cuts = split
    assert run_stops(text, cuts, strings, include=include) == reference(text, strings, include)


@many
@given(st.text("ab\n", max_size=24), stop_lists)
def test_no_more_is_held_than_the_longest_real_prefix(text, strings):
    matcher = StopMatcher(strings)
    released = matcher.push(text)
    if matcher.match is None:
        tails = (text[i:] for i in range(len(text) + 1))
        longest = next(tail for tail in tails if any(s.startswith(tail) and s != tail for s in strings))
        assert released + longest == text


@many
@given(split_texts(), stop_lists)
def test_literal_patterns_stop_where_strings_do(split, strings):
    text, cuts = split
    import regex

    assert run_stops(text, cuts, patterns=[regex.escape(strings[0])]) == reference(text, strings[:1])


@many
@given(split_texts(), patterns)
def test_every_split_gives_what_trying_a_pattern_after_each_character_gives(split, pattern):
    import regex

    assume(not regex.search(pattern, ""))
    text, cuts = split
    tries = (regex.search(pattern, text[:end]) for end in range(1, len(text) + 1))
    first = next((found for found in tries if found), None)
    finish = None if first is None else FinishReason("stop", first[0], first.start())
    want = (text if first is None else text[: first.start()], finish)
    assert run_stops(text, cuts, patterns=[pattern]) == want


def test_a_hostile_pattern_ends_in_an_error():
    matcher = StopMatcher(patterns=[r"(?:a|a)*(?:a|aa)+(?:b|b)*\d"])
    with pytest.raises(GenerationError, match="took over"):
        matcher.push("a" * 500)


def test_a_pattern_that_nests_without_end_is_refused():
    for pattern in ["(" * 2000 + "a" + ")" * 2000, "(?R)"]:
        with pytest.raises(UsageError, match=r"nested too deep|over 0\.5 s"):
            StopMatcher(patterns=[pattern])
