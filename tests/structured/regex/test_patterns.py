"""Patterns mean what they mean in ECMA-262, and end in time."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gencli.structured.ecma_regex import MAX_REPEATS, check_pattern, searches
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


def test_a_match_is_found():
    for pattern, text in MATCHES:
        assert searches(pattern, text, 5), pattern


def test_what_python_would_take_is_not_a_match():
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
