"""`--lark`: what llguidance takes passes, and what it lacks is named with its place."""

import re

import pytest

from gencli.errors import ConfigError
from gencli.structured.text_plans import plan_lark
from tests.helpers.refusal import refusal
from tests.structured.backends import accepts


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
