"""`--grammar`: GBNF rewritten for both back ends, xgrammar's EBNF as it is, and the rest refused by name."""

import re

from gencli.errors import ConfigError
from gencli.structured.text_plans import plan_grammar
from processors.request_values import Constraint
from tests.helpers.refusal import refusal
from tests.structured.backends import accepts


def takes(grammar, text):
    """Whether xgrammar takes the grammar, and the text by it."""
    try:
        return accepts(Constraint("ebnf", grammar, "xgrammar"))(text)
    except RuntimeError:
        return False


def test_why_gbnf_is_rewritten_for_xgrammar():
    for grammar, text in [
        ("root ::= .", "a"),
        ('root ::= "\\x41B"', "AB"),
        ('root ::= 1a\n1a ::= "z"', "z"),
        ('root ::= true\ntrue ::= "z"', "z"),
        ('root ::= "a"*?', "aa"),
    ]:
        assert not takes(grammar, text), grammar
        assert takes(plan_grammar(grammar).variants[0].constraint.text, text), grammar


def test_why_a_literal_and_a_class_are_one_terminal_for_llguidance():
    grammar = plan_grammar('root ::= [a-z]+ "b"').variants[1].constraint
    apart = Constraint("lark", 'start: /[a-z]+/ "b"', "llguidance")
    assert accepts(grammar)("ab")
    assert not accepts(apart)("ab")


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
