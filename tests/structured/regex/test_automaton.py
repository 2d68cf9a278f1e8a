"""Patterns are combined into one that matches what all of some match and none of others."""

import random
import re

from gencli.structured.errors import GiveUp
from gencli.structured.regex.ecma_search import searches
from gencli.structured.regex.tree import RegexError
from gencli.structured.rewrite.strings import are_apart, single_pattern
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
    assert not are_apart(("^a", "b$"))
    assert not are_apart(("^a", r"(b)\1"))  # not known


def test_what_cannot_be_combined_or_grows_too_large_is_given_up():
    for wanted, refused, error in [
        ([r"(a)\1"], [], RegexError),
        (["x(?!1)"], [], RegexError),
        (["^a"], [r"\s"], GiveUp),  # its complement has characters that some readings call white space
        (["^a"], ["^(?!b)"], GiveUp),
        (["a.{40}"], ["b.{40}c"], GiveUp),
    ]:
        assert refusal(error, single_pattern, wanted, refused), wanted
