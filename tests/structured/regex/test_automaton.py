"""Patterns are combined into one that matches what all of some match and none of others."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gencli.structured.ecma_regex import parse_regex, searches
from gencli.structured.grammar_tree import RegexError
from gencli.structured.pattern_sets import between, searched
from gencli.structured.rewrite_strings import are_apart, single_pattern
from gencli.structured.schema_errors import GiveUp
from tests.helpers.refusal import refusal

CASES = [
    (["^(?!@@)[@a-c]+$"], []),
    (["^(?!x-)"], []),
    (["^(?!(?:a|bc)$)"], []),
    ([r"^(?=.*a)(?=.*b)[a-c]{2,4}$"], []),
    (["^x", "b$"], []),
    (["^x"], ["b$"]),
    (["^[a-c]{1,3}$"], ["^abc$", "^ab$"]),
    (["(a|b)+c"], ["x"]),
    ([r"^[^\s,]+$"], ["a"]),
    (["^a{3,9}$"], ["^aaab*$"]),
    (["x(?!1)"], []),
    (["[a-c]"], ["^(?!b)", r"c\b"]),
    ([r"\bx"], [r"\B-"]),
    (["(?<=a)b", "(?<!1)$"], []),
    (["a(^b|c)*$"], []),
    (["^a", r"^(?!.*\d)"], [r"\s"]),
]


def test_one_pattern_matches_what_all_match_and_none_of_the_others():
    for wanted, refused in CASES:
        rng = random.Random(3)
        found = single_pattern(wanted, refused, ["xa", "b"])
        for text in [
            "xa",
            "b",
            *("".join(rng.choices("abcx@-1 \n", k=rng.randint(0, 6))) for _ in range(500)),
        ]:
            expected = all(searches(one, text, 1) for one in wanted) and text not in ("xa", "b")
            expected = expected and not any(searches(one, text, 1) for one in refused)
            assert bool(re.search(found.replace(")$", r")\Z"), text)) == expected, text


def test_nothing_is_left_where_they_exclude_each_other():
    assert single_pattern(["^a"], ["^a"]) is None
    assert are_apart(("^a", "^b", "^(?!a|b)"))
    assert are_apart((r"^a\b", "^a[b-z]", "a(?!.)[b-c]"))
    assert not are_apart(("^a", "b$"))
    assert not are_apart(("^a", r"(b)\1"))  # not known


def test_what_cannot_be_combined_or_grows_too_large_is_given_up():
    for wanted, refused, error in [
        ([r"(a)\1"], [], RegexError),
        (["a.{40}"], ["b.{40}c"], GiveUp),
    ]:
        assert refusal(error, single_pattern, wanted, refused), wanted


ATOMS = [
    "a",
    "b",
    "-",
    " ",
    "[ab]",
    "[^a]",
    ".",
    r"\w",
    r"[^\W]",
    r"\b",
    r"\B",
    "^",
    "$",
    r"[\D\p{L}]",
    r"\p{Ll}",
]
GROUPS = ["(?={})", "(?!{})", "(?<={})", "(?<!{})", "(?:{})", "(?:{})*", "(?:{})+", "(?:{}){{1,2}}"]
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda below: (
        st.lists(below, min_size=2, max_size=3).map("".join)
        | st.tuples(below, below).map("|".join)
        | st.tuples(st.sampled_from(GROUPS), below).map(lambda pair: pair[0].format(pair[1]))
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(PATTERNS, st.lists(st.text(alphabet="ab- é", max_size=5), min_size=40, max_size=40))
def test_assertions_mean_in_the_automaton_what_they_mean_in_a_search(pattern, texts):
    try:
        found = between([searched(parse_regex(pattern))], [])
    except GiveUp:
        return
    written = re.compile(found.replace(")$", r")\Z")) if found else None
    for text in texts:
        expected = searches(pattern, text, 5)
        is_narrow = r"[\D" in pattern or r"[^\W" in pattern  # the letters that only some dialects have
        is_found = bool(written and written.search(text))
        assert is_found == expected or (is_narrow and "é" in text), (pattern, text)
