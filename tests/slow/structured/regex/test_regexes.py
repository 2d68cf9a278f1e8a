"""`--regex`: both back ends and the final check mean the same, and the rest is refused by name."""

import random
import re

import regex

from gencli.structured.text_plans import plan_regex
from tests.structured.backends import all_accept

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
é|漢""".split("\n")


def texts(pattern):
    draw = random.Random(pattern)
    letters = LETTERS + "".join(filter(str.isprintable, pattern))
    yield from ("", *letters, "2019-01", "straße", "STRAßE", 'a{"a": 1}', '{"a": 1}', "acbc", "abbb", "Aé😀")
    yield from (".*\\/-", "aBc", "aab", "abcc", "xxa", "bbc", "漢", "ab", "aBC", "ac", "xx", "kx")
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
        for text in texts(pattern):
            expected = compiled.fullmatch(text) is not None
            assert (not plan.check.faults(text)) == expected, repr(text)
            assert [accept(text) for accept in backends] == [expected, expected], repr(text)
            accepted += expected
        assert accepted, pattern
