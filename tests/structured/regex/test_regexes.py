"""`--regex`: both back ends and the final check mean the same, and the rest is refused by name."""

import re

import pytest
import regex

from gencli.errors import ConfigError
from gencli.structured.grammar_tree import MOST_REPEATS
from gencli.structured.text_plans import MOST_LETTERS, MOST_NESTED, RegexCheck, plan_regex
from tests.helpers.refusal import refusal
from tests.structured.backends import accepts, all_accept


def test_why_patterns_are_written_out():
    for pattern, text, wrong in [
        (".", "\n", "xgrammar"),
        (r"\w", "é", "llguidance"),
        (r"\d", "٣", "llguidance"),
        (r"\s", "\u00a0", "llguidance"),
        ("[a&&b]", "a", "llguidance"),
        ("a^b", "ab", "xgrammar"),
    ]:
        kind = plan_regex("a").variants[wrong == "llguidance"].constraint
        given = type(kind)("regex", pattern, wrong)
        matches = regex.fullmatch(pattern, text, regex.ASCII) is not None
        assert accepts(given)(text) != matches, pattern


def test_what_cannot_be_enforced_is_refused_by_name_and_column():
    for pattern, what, column in [
        ("a(?=b)", "a lookahead", 2),
        ("a(?!b)", "a negative lookahead", 2),
        ("(?<=a)b", "a lookbehind", 1),
        ("(?<!a)b", "a negative lookbehind", 1),
        (r"(a)\1", "a backreference", 4),
        (r"(?P<n>a)(?P=n)", "a backreference", 9),
        (r"\k<n>", "a backreference", 1),
        (r"\bab", "a word boundary", 1),
        ("a++", "a possessive quantifier", 2),
        ("a?+", "a possessive quantifier", 2),
        ("(?>a)", "an atomic group", 1),
        ("(?x)a", "the inline flag", 1),
        ("(?m)^a", "the inline flag", 1),
        ("(?R)", "recursion", 1),
        ("(?1)", "a call of a group", 1),
        ("(?(1)a)", "a conditional", 1),
        ("(?|a|b)", "a branch reset", 1),
        ("(*FAIL)", "a control verb", 1),
        ("[a--b]", "a set operation", 3),
        (r"(?i)[\W]", "a negated shorthand in a class without case", 6),
        ("[a[b]]", "a set within a set", 3),
        (r"\X", "a grapheme", 1),
        ("a^b", "an anchor", 2),
        ("a$b", "an anchor", 2),
        ("(a$)*", "an anchor", 3),
        ("^*a", "An anchor (^) cannot be repeated", 2),
        ("a(?i)b", "Inline flags stand in the middle", 2),
        ("(a", "The group is not closed", 1),
        ("a)", "no group that ')' could close", 2),
        ("[a", "The class is not closed", 1),
        ("a**", "One quantifier follows another", 2),
        ("*a", "There is nothing that '*' could repeat", 1),
        ("a{3,2}", "a minimum above its maximum", 2),
        (f"a{{{MOST_REPEATS + 1}}}", f"more than {MOST_REPEATS} times", 2),
        ("a{e<=1}", "A brace that is no counted repeat", 2),
        (r"\q", r"\q is not understood", 1),
        (r"[\q]", "bad escape", 1),
        (r"\p{Foo}", "unknown property", 1),
        (r"\p{Cs}", r"No character matches \p{Cs}", 1),
        ("a\\", "A backslash ends the pattern", 2),
        ("a\udc80", "not valid UTF-8", 2),
        ("(" * (MOST_NESTED + 1), f"More than {MOST_NESTED} groups", MOST_NESTED + 1),
    ]:
        with pytest.raises(ConfigError) as failure:
            plan_regex(pattern)
        assert what in failure.value.message, pattern
        assert f"at column {column} of" in failure.value.message, pattern


def test_a_regex_of_nothing_is_refused():
    for pattern in ["", "()", "^$", "a{0}"]:
        assert re.search("nothing but the empty text", refusal(ConfigError, plan_regex, pattern)), pattern


def test_a_regex_has_a_limited_size():
    with pytest.raises(ConfigError, match=f"at most {MOST_LETTERS}"):
        plan_regex("a" * (MOST_LETTERS + 1))


def test_shorthands_are_ascii_and_properties_are_unicode():
    for pattern, right, wrong in [
        (r"(?i)é\W", "É\u212a", "Ék"),
        (r"[\w\p{Greek}]+", "aλ", "é"),
        (r"(?i)[a-z]", "\u212a", "é"),
        (r"\p{L}\d", "é3", "é٣"),
        ("(?-s:.)", "\r", "\n"),
    ]:
        plan = plan_regex(pattern)
        assert [accept(right) for accept in all_accept(plan)] == [True, True], pattern
        assert [accept(wrong) for accept in all_accept(plan)] == [False, False], pattern
        assert plan.check.faults(right) == (), pattern
        assert plan.check.faults(wrong), pattern


def test_a_check_says_what_does_not_match():
    assert RegexCheck("[ab]+", "[ab]+").faults("abc") == ("The text does not match the regex '[ab]+'.",)
