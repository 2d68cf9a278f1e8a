"""`--grammar`: GBNF rewritten for both back ends, xgrammar's EBNF as it is, and the rest refused by name."""

from itertools import product

from gencli.structured.text_plans import plan_grammar
from tests.structured.backends import all_accept

# A grammar, the letters of its texts, and how many texts of up to five letters it has.
GRAMMARS = [
    ('root ::= "a" | "b"\n', "ab", 2),
    ('root ::= [a-c]+ "b"', "abc", 120),
    ('root ::= x "," x\nx ::= "tt" | true\ntrue ::= [0-1]{1,2}', "t01,", 49),
    ('root ::= "(" root ")" | ""', "()", 3),
    ('root ::= e\ne ::= t ("+" t)*\nt ::= [0-9]+ | "(" e ")"', "0+()", 19),
    ('root ::= . "\\x41B"', "aAB\n", 4),
    ('root ::= [^"\\n]* "\\""', 'a"\n', 5),
    ('root ::= ("ab" | "a") "c"? | 1a\n1a ::= "z"?\n', "abcz", 6),
    ('root ::= [a-b] root | "1"', "ab1", 31),
    ('root ::= "a" root "b" | ("b"? "a"){0}', "ab", 3),
    ('root ::= ("a"+)? "b"', "ab", 5),
    ('root ::= "a"*? "b"', "ab", 5),
    ('root ::= ("a" | ) ("b" |\n "c")', "abc", 4),
    ('root ::= [\\u00e9-\\u00ff] "é" "\\U0001F600"?', "éa😀", 2),
    ("root ::= [-a] [a-] [^^]", "-a^", 8),
    ('# one\nroot ::= # two\n "a" # three\n  "b"\nunused ::= "c"', "abc", 1),
    ('root ::= (("a" | "b") root)? ', "ab", 63),
    ('root ::= w w\nw ::= [ab]+ (w | "c")?', "abc", 176),
]


def test_both_back_ends_accept_the_texts_of_a_gbnf_grammar():
    for grammar, letters, count in GRAMMARS:
        plan = plan_grammar(grammar)
        xgrammar, llguidance = all_accept(plan)
        texts = ["".join(text) for length in range(6) for text in product(letters, repeat=length)]
        accepted = {text for text in texts if xgrammar(text)}
        assert accepted == {text for text in texts if llguidance(text)}, grammar
        assert len(accepted) == count, grammar
        assert all(variant.audit.is_exact for variant in plan.variants), grammar


def test_a_long_chain_of_rules_is_read_without_recursion():
    rules = "".join(f"r{number} ::= r{number + 1}\n" for number in range(5000))
    plan = plan_grammar(f'root ::= "a" r0\n{rules}r5000 ::= "b"')
    assert len(plan.variants) == 2
