"""Regular expressions and grammars: both back ends and the final check accept the same texts."""

import random
import re
from itertools import product

import regex

from gencli.errors import ConfigError
from gencli.structured.text_plans import plan_grammar, plan_regex
from tests.structured.backends import all_accept

# A grammar, the letters of its texts, and how many texts of up to five letters it has.
GRAMMARS = [
    ('root ::= "a" | "b"\n', "ab", 2),
    ('root ::= [a-c]+ "b"', "abc", 120),
    ('root ::= x "," x\nx ::= "tt" | true\ntrue ::= [0-1]{1,2}', "t01,", 49),
    ('root ::= "(" root ")" | ""', "()", 3),
    ('root ::= e\ne ::= t ("+" t)*\nt ::= [0-9]+ | "(" e ")"', "0+()", 19),
    ('root ::= . "\\x41B"', "aAB\n", 4),
    ('root ::= "a\\x00"? [\\x00] "b"', "a\0b", 2),
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


ATOMS = ["a", "b", "[ab]", "[^a]", ".", "(?s:.)", r"\w", r"\W", "é", "(?i:a)", r"[^\w]", r"\s"]
MARKS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{2,}", "{,2}", "{0}"]
ELEMENTS = ['"a"', '"ab"', "[ab]", "[^a]", ".", '"b"', '"ba"', "x", "y", "z"]
COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{0}", "{2,}"]


def texts(letters, longest):
    return ["".join(text) for length in range(longest + 1) for text in product(letters, repeat=length)]


def random_regex(draw, depth=3):
    if not depth or draw.random() < 0.25:
        return draw.choice(ATOMS)
    one, other = random_regex(draw, depth - 1), random_regex(draw, depth - 1)
    return draw.choice([one + other, f"(?:{one}|{other})", f"({one}){draw.choice(MARKS)}", f"({one}|)"])


def random_body(draw, depth=2):
    if not depth or draw.random() < 0.25:
        return draw.choice(ELEMENTS)
    one, other = random_body(draw, depth - 1), random_body(draw, depth - 1)
    return draw.choice(
        [f"{one} {other}", f"({one} | {other})", f"({one}){draw.choice(COUNTS)}", f"({one} | )"]
    )


def planned(make, plan, draw):
    """The first few that are not refused."""
    found = []
    while len(found) < 8:
        given = make(draw)
        try:
            found.append((given, plan(given)))
        except ConfigError:
            continue
    return found


def check_expressions(seed):
    for pattern, plan in planned(random_regex, plan_regex, random.Random(seed)):
        compiled, backends = regex.compile(pattern, regex.ASCII), all_accept(plan)
        for text in texts("abé\n", 4):
            expected = compiled.fullmatch(text) is not None
            assert [accept(text) for accept in backends] == [expected, expected], (pattern, text)
            assert (not plan.check.faults(text)) == expected, (pattern, text)


def random_grammar(draw):
    return "\n".join(
        f"{name} ::= {random_body(draw)} | {draw.choice(ELEMENTS[:7])}" for name in ("root", *"xyz")
    )


def check_grammars(seed):
    for grammar, plan in planned(random_grammar, plan_grammar, random.Random(seed)):
        xgrammar, llguidance = all_accept(plan)
        for text in texts("abc", 5):
            assert xgrammar(text) == llguidance(text), (grammar, text)


def test_random_expressions_and_grammars():
    check_expressions(0)
    check_grammars(0)


LETTERS = 'abcxkABKS019 _-.*/\\^$]{}":\t\n\u00a0éÉß٣漢\u017f\u212a😀'

PATTERNS = r"""\d{4}-\d\d
^ab$
^a|b$
(^a|b)c
\Aa\Z
(?i)straße
(?i:k)x
a(?i:b(?-i:c))
.+
(?s).+
(?s:.)\.
[^a-c]+
[\s\S]*b
\w+\s?\W
[\d\s]
[^\W\d]
[]a]
[\]\-\\^]+
[[:alpha:]_]+
\p{Lu}\p{L}*
\P{L}
\N{DIGIT ONE}
a*?b{2,}?
a??b
x{,2}a
x{2}
x{1,}
a{0}b
(a|)b
(?P<n>a)(?<m>b)
a(?#why)b
((a|b)*c){1,3}
(ab|abc)c
(a|b)?$
\x41\u00e9\U0001F600
{"a": \d}
\.\*\\\/\-
\x00+a
é|漢""".split("\n")


def texts_near(pattern):
    draw = random.Random(pattern)
    letters = LETTERS + "".join(filter(str.isprintable, pattern))
    yield from ("", *letters, "2019-01", "straße", "STRAßE", 'a{"a": 1}', '{"a": 1}', "acbc", "abbb", "Aé😀")
    yield from (".*\\/-", "\0a", "aBc", "aab", "abcc", "xxa", "bbc", "漢", "ab", "aBC", "ac", "xx", "kx")
    yield from ("".join(draw.choices(letters, k=draw.randint(2, 4))) for _ in range(300))


def test_back_ends_and_check_accept_the_texts_of_the_pattern():
    for pattern in PATTERNS:
        plan = plan_regex(pattern)
        ascii_only = (
            0 if re.search(r"\\[pP]|\(\?i|\[:", pattern) else regex.ASCII
        )  # a flag for properties, too
        compiled = regex.compile(pattern, ascii_only)
        backends = all_accept(plan)
        assert all(variant.audit.is_exact for variant in plan.variants), pattern
        accepted = 0
        for text in texts_near(pattern):
            expected = compiled.fullmatch(text) is not None
            assert (not plan.check.faults(text)) == expected, repr(text)
            assert [accept(text) for accept in backends] == [expected, expected], repr(text)
            accepted += expected
        assert accepted, pattern
