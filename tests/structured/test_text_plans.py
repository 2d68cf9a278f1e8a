"""Choices, regular expressions and grammars: rewritten for the back ends, or refused by name."""

import json
import re

import pytest

from gencli.errors import ConfigError
from gencli.structured.grammar_tree import MOST_REPEATS
from gencli.structured.text_plans import (
    MOST_LETTERS,
    MOST_NESTED,
    RegexCheck,
    plan_choices,
    plan_grammar,
    plan_lark,
    plan_regex,
)
from processors.request_values import Constraint
from tests.helpers.refusal import refusal
from tests.structured.backends import accepts, all_accept


def test_choices_are_a_list_for_the_plain_back_end_and_checked_whole():
    constraint = plan_choices(["yes", "yes, but", "né"]).variants[0].constraint
    assert (constraint.kind, constraint.backend) == ("choice", "trie")
    assert json.loads(constraint.text) == ["yes", "yes, but", "né"]
    check = plan_choices(["yes", "no"]).check
    assert check.faults("yes") == ()
    assert check.faults("ye") == ("'ye' is none of the 2 choices.",)


def test_choices_that_cannot_be_are_refused():
    for choices, message in [
        ([], "There is no choice"),
        (["a", ""], "Choice 2 is empty"),
        (["a", "b", "a"], "Choice 3 is 'a', like an earlier one"),
        (["a", 1], "Choice 2 is 1, which is no text"),
        (["\udc80"], "not valid UTF-8"),
    ]:
        assert re.search(message, refusal(ConfigError, plan_choices, choices)), choices


def test_what_only_xgrammar_has_goes_to_it_as_it_is():
    for grammar, text in [
        ('root ::= Regex("a+") "b"', "aab"),
        ('root ::= TagDispatch(("<t>", x))\nx ::= "y"', "free <t>y"),
        ("root[max_tokens=3] ::= [a-z]+", "abc"),
        ("root[max_chars=3] ::= [a-z]+", "abc"),
        ('root ::= a.b\na.b ::= "\\f"', "\f"),
        ('root ::= "\\x1F600" [^]', "😀x"),
        ('root ::= "\\x41B\\f"', "\u041b\f"),
    ]:
        plan = plan_grammar(grammar)
        assert [variant.constraint for variant in plan.variants] == [
            Constraint("ebnf", grammar, "xgrammar")
        ], grammar
        assert accepts(plan.variants[0].constraint)(text), grammar


def test_what_is_wrong_is_said_before_a_back_end_runs():
    for grammar, message in [
        ("", "The grammar is empty"),
        (" # nothing\n", "The grammar is empty"),
        ("root ::=", "nothing but the empty text"),
        ("root ::= a", "There is no rule 'a', named at line 1, column 10"),
        ('rot ::= "a"', "The grammar has no rule 'root'"),
        ('root ::= root "a" | "a"', r"line 1, column 1 of the grammar, is left-recursive \(root -> root\)"),
        ('root ::= x\nx ::= y? z\ny ::= "y"\nz ::= x | "z"', r"line 2, .* is left-recursive \(x -> z -> x\)"),
        ('root ::= "a" root', "Rule 'root', at line 1, column 1 .* never come to an end"),
        ('root ::= x | "b"\nx ::= "x" x', "Rule 'x', at line 2, column 1 .* never come to an end"),
        ('root ::= "a"\nroot ::= "b"', "Rule 'root' is defined twice, at line 2, column 1"),
        ('start: "a"', "looks like a Lark grammar"),
        ('%ignore " "\nstart: "a"', "looks like a Lark grammar"),
        ('<root> ::= "a"', "BNF with names in angle brackets"),
        ('root = "a" ;', "ISO EBNF"),
        ('root := "a"', "EBNF with :="),
        ('root -> "a"', "rules with arrows"),
        ("root ::= 'a'", "A string has double quotes, at line 1, column 10"),
        ("root ::= <think>", "A token by its name or id cannot be used"),
        ('root ::= "a" "b', "The string is not closed, at line 1, column 14"),
        ("root ::= [a-", "The class is not closed"),
        ('root ::= ("a"', "The group is not closed, at line 1, column 10"),
        ('root ::= "a")', r"A rule is expected here \(name ::= ...\), at line 1, column 13"),
        ('root ::= "a"{3,2}', "a minimum above its maximum"),
        ('root ::= "a"{,3}', "A count is expected"),
        ('root ::= "a"{1000000}', "repeats more than"),
        ('root ::= "a"*****', "More than 4 quantifiers"),
        ("root ::= *", "There is nothing that '\\*' could repeat"),
        ('root ::= "\\q"', "The escape .q is not known"),
        ('root ::= "\\u12"', "too few hexadecimal digits"),
        ('root ::= "\\ud800"', "is no character"),
        ("root ::= [\\d]", "The shorthand .d is not known"),
        ("root ::= []", "No character matches this class"),
        ("root ::= [z-a]", "The range z-a is backwards"),
        ('root ::= (="a") "b"', "A lookahead cannot be used"),
        ('root ::= Foo("a")', "There is no macro 'Foo'"),
        ('root ::= TagDispatch(("<t>", x)', "The macro TagDispatch is not closed"),
        ('root ::= . Regex("a")', "mixes two notations: a dot .* column 10 .* the macro Regex .* column 12"),
        ('root[temperature=0.5, max_tokens=3] ::= "a"', "A temperature of one rule together with max_tokens"),
        ('root[temperature=0.5] ::= "a"', "A temperature of one rule is not applied"),
        ('root[capture] ::= "a"', "The rule option 'capture' has no effect"),
        ("root ::= " + "(" * 101, "More than 100 groups"),
        ("#" * (1 << 21), "at most 1048576 are read"),
    ]:
        assert re.search(message, refusal(ConfigError, plan_grammar, grammar)), grammar


def test_a_grammar_goes_to_llguidance_as_it_is():
    for grammar, right, wrong in [
        ('start: x\nx: x "a" | "b"', "baa", "ab"),
        ('?start: "a" -> first\n  | "b"i // why\n', "B", "A"),
        ('start: ["a"] "b"~2..3', "abb", "ab"),
        ('start: "a".."c" "d"{2,}', "bdd", "bd"),
        ("%import common (INT, WS)\n%ignore WS\nstart: INT INT", "1 2", "1"),
        ("%import common.INT -> NUM\nstart: NUM", "12", "x"),
        ("start: A\nA: /[a-z]/ & ~/b/", "a", "b"),
        ('start: ("a"\n | "b")', "b", "c"),
        ("start: head /b/\nhead[lazy]: /a*a/", "ab", "aab"),
        ('start: x\nx[suffix="!"]: /.*/', "ab!", "ab"),
        ('start: "x" %json {"type": "integer", "title": "}"}', "x12", "xy"),
        ('start: %regex {"substring_chars": "abc"}', "bc", "ac"),
        ("start: /[a?*]?/ /\\*?/i", "?*", "**?"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "a", "b"),
    ]:
        (variant,) = plan_lark(grammar).variants
        assert variant.constraint.text == grammar, grammar
        accept = accepts(variant.constraint)
        assert accept(right), grammar
        assert not accept(wrong), grammar


def test_what_llguidance_lacks_is_named():
    for grammar, message in [
        ("", "The Lark grammar is empty"),
        ('begin: "a"', "The grammar has no rule 'start'"),
        ("start: x", "There is no rule 'x', named at line 1, column 8"),
        ('start: "a" start', "Rule 'start', .* can never come to an end"),
        ('start: "a" | x\nx: x "b"', "Rule 'x', at line 2, column 1 .* can never come to an end"),
        ("start:", "nothing but the empty text"),
        ('start: "a"\nstart: "b"', "'start' is defined twice, at line 2, column 1"),
        ('start: A\nA.2: "x"', "does not have priorities, at line 2, column 3"),
        ('start: a{"x"}\na{b}: b', "does not have templates, at line 1"),
        ('start: a::b\na: "x"', "does not have parameters of rules"),
        ('%declare X\nstart: "a"', "does not have %declare"),
        ('%override start: "a"', "does not have %override"),
        ("%import python.NAME\nstart: NAME", "imports from 'common' alone"),
        ("%import common.FOO\nstart: FOO", "line 1, column 1: Unknown common regex: common.FOO"),
        ("start: /a*?/", "does not have lazy quantifiers"),
        ("start: /a{2}+/", "does not have possessive quantifiers"),
        ("start: /(?<!a)b/", "does not have lookarounds"),
        ("start: /\\bab/", "line 1, column 8: .*lookarounds not supported"),
        ("start: 'a'", "is not understood, at line 1, column 8"),
        ("start: @other", "There is no grammar @other"),
        ('start: "a" <|end|>', "names a token"),
        ("start: A\nA: b\nb: /x/", 'line 2, column 4: unknown name: "b"'),
        ('start: %json {"type": "integer"', "The JSON object is not closed"),
        ('start: (("a")', "is expected, not 'the end', at line 1"),
        ('start: "a" )', r"'\)' is not understood where a rule would begin"),
        (
            "start: x\nx[temperature=0.7, max_tokens=3]: /a/",
            "together with max_tokens is not applied, at line 2",
        ),
        ("start: x\nx[temperature=0.7]: /a/", "The rule option 'temperature' cannot be used"),
        ("start: x\nx[max_tokens=3]: /a/", "The rule option 'max_tokens' cannot be used"),
        ('start: x "b"\nx[stop="b"]: /a/', "The rule option 'stop' cannot be used"),
        ("start: x\nx[capture]: /a/", "The rule option 'capture' cannot be used"),
        ("start: x\nx[foo=1]: /a/", "Unknown attribute: foo"),
        ("start: " + "(" * 101, "More than 100 groups"),
        ('start: %json {"type": "integer", "multipleOf": "a"}', "llguidance rejects the Lark grammar"),
    ]:
        assert re.search(message, refusal(ConfigError, plan_lark, grammar)), grammar


def test_what_llguidance_says_of_a_long_grammar_is_short():
    with pytest.raises(ConfigError) as caught:
        plan_lark("start: /" + "(" * 10_000 + ")" * 10_000 + "/")
    assert len(caught.value.message) < 300


def test_a_long_chain_of_rules_is_left_to_the_compile():
    rules = "".join(f"r{number}: r{number + 1}\n" for number in range(2000))
    assert plan_lark(f'start: r0\n{rules}r2000: "b"').variants


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
    for pattern in ["", "()", "^$", "a{0}"]:
        assert "nothing but the empty text" in refusal(ConfigError, plan_regex, pattern), pattern
    assert f"at most {MOST_LETTERS}" in refusal(ConfigError, plan_regex, "a" * (MOST_LETTERS + 1))


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
    assert RegexCheck("[ab]+", "[ab]+").faults("abc") == ("The text does not match the regex '[ab]+'.",)
