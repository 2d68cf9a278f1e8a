"""Random expressions and grammars: the back ends agree on every short text, and with the `regex` package."""

import random
from itertools import product

import regex

from gencli.errors import ConfigError
from gencli.structured.text_plans import plan_grammar, plan_regex
from tests.structured.backends import all_accept

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
    while len(found) < 12:
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
