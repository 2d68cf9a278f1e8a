"""Patterns mean what they mean in ECMA-262, end in time, and are combined into one."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gencli.structured.ecma_regex import MAX_REPEATS, check_pattern, parse_regex, searches
from gencli.structured.grammar_tree import RegexError
from gencli.structured.pattern_sets import between, searched
from gencli.structured.rewrite_strings import are_apart, single_pattern
from gencli.structured.schema_errors import GiveUp
from tests.helpers.refusal import refusal

MATCHES = [
    ("b", "abc"),
    ("^$", ""),
    (r"^\d+$", "123"),
    (r"^\s$", "\ufeff"),
    (r"^\s$", "\u00a0"),
    (r"^\S$", "\x85"),
    (r"^\D\W$", "٣é"),
    (r"^[\D]$", "٣"),
    (r"^[^\W]$", "_"),
    (r"^[\w-a]$", "-"),
    (r"^[a-]$", "-"),
    (r"^[-a]$", "-"),
    (r"^[+--]$", ","),
    (r"^[a\-z]+$", "a-z"),
    (r"^[[:alpha:]]$", ":]"),
    (r"^[a&&b]$", "&"),
    (r"^[\b]$", "\b"),
    (r"^[^]$", "\n"),
    (r"^.$", "\x85"),
    (r"^.$", "😀"),
    (r"^\/\-\.$", "/-."),
    (r"^\cJ\x41\u0042\u{1F600}\uD83D\uDE00$", "\nAB😀😀"),
    (r"^[\u0041-\x43]+$", "ABC"),
    (r"^\p{Lu}\p{Script=Greek}[\p{Nd}]$", "Äα٣"),
    (r"^\P{L}$", "1"),
    (r"^(?<y>\d)-\k<y>$", "1-1"),
    (r"^(?P<y>a)$", "a"),
    (r"(?:a|(b))\1$", "a"),
    (r"^(a)\1$", "aa"),
    (r"^a{2,3}?$", "aaa"),
    (r"^a{,2}$", "a{,2}"),
    (r"^a{e<=1}$", "a{e<=1}"),
    (r"^x{$", "x{"),
    (r"^(?=.*\d)(?!.*b)(?<!x)\w+$", "a1"),
    (r"é\b", "éa"),
    (r"(?i)^A$", "a"),
    (r"^(?:a|b)+?$", "abab"),
]

MISSES = [
    (r"^a$", "a\n"),
    (r"^\d$", "٣"),
    (r"^\w$", "é"),
    (r"^\s$", "\x85"),
    (r"^.$", "\r"),
    (r"^.$", "\u2028"),
    (r"[]", "a"),
    (r"^[\W]$", "_"),
    (r"^\P{L}$", "ä"),
    (r"a\b", "a_"),
]


def test_patterns_match_as_in_ecma_262_and_not_as_in_python():
    for pattern, text in MATCHES:
        assert searches(pattern, text, 5), pattern
    for pattern, text in MISSES:
        assert not searches(pattern, text, 5), pattern


def test_what_is_no_pattern_is_refused_with_a_reason():
    for pattern, part in [
        ("(", "missing"),
        (")", "unbalanced"),
        ("[a", "not in ECMA-262"),
        ("a**", "nothing to repeat"),
        ("a++", "nothing to repeat"),
        ("a{2}{3}", "nothing to repeat"),
        ("*a", "nothing to repeat"),
        ("a|*", "nothing to repeat"),
        ("(?R)", "not in ECMA-262"),
        ("(?>a)", "not in ECMA-262"),
        ("(?s).", "not in ECMA-262"),
        (r"\Aa\Z", "not in ECMA-262"),
        (r"\e", "not in ECMA-262"),
        (r"\u12", "not in ECMA-262"),
        (r"\u{110000}", "not in ECMA-262"),
        (r"\xgg", "not in ECMA-262"),
        (r"\x 1", "not in ECMA-262"),
        (r"[b-a]", "backwards"),
        (r"\p{Nonsense}", "unknown property"),
        (r"\2(a)", "group"),
        (r"\k<a>", "group"),
        ("\\", "not in ECMA-262"),
        ("a{100001}", f"more than {MAX_REPEATS} repeats"),
        ("a{1,1000000000}", f"more than {MAX_REPEATS} repeats"),
        ("(?:(a{1000}b)c{1000}){101}", f"more than {MAX_REPEATS} repeats"),
        ("(" * 5000 + ")" * 5000, "nested too deep"),
        ("a" * 20_001, "20001 characters"),
    ]:
        assert re.search(part, refusal(ValueError, check_pattern, pattern)), pattern


def test_a_pattern_that_backtracks_without_end_is_stopped():
    for pattern in [r"^(a|aa)+$", r"^(\w+\s?)*$"]:
        assert refusal(TimeoutError, searches, pattern, "a" * 5000 + "!", 0.05), pattern


@given(st.text(alphabet=r"ab01\[](){}?*+-^$.,:=!<>|dwsbBupPxk" + "\n", max_size=14))
def test_any_text_is_a_pattern_or_refused(pattern):
    try:
        check_pattern(pattern)
    except ValueError:
        return
    searches(pattern, "ab01 -", 5)


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
    for wanted, refused, error in [([r"(a)\1"], [], RegexError), (["a.{40}"], ["b.{40}c"], GiveUp)]:
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
