"""Lengths, patterns, formats."""

from __future__ import annotations

from itertools import combinations

from gencli.structured.rewrite_strings import PATTERNS as PATTERNS_OF
from tests.structured.probes.probe import Probe, judged, texts_of

S = {"type": "string"}
WORDS = ("", "a", "ab", "abc", "b", "xb", "é", "éé", "😀😀", "😀😀😀", "1", "-", 3, None)
LONG = ("a\n", 'a"', "\n\n", "\n\n\n", "\\\\", "\t", "aaaa")


def _texts(shape, schema, accept, refuse):
    return Probe(shape, schema, tuple(map(texts_of, accept)), tuple(map(texts_of, refuse)))


LENGTHS = [
    judged("minLength", {**S, "minLength": 2}, *WORDS, *LONG),
    judged("maxLength", {**S, "maxLength": 2}, *WORDS, *LONG),
    Probe("maxLength", {**S, "maxLength": 2}, ('"\\n"', '"\\""'), ('"\t"', '"\n"', '"\\"', '"""')),
    Probe("minLength", {**S, "minLength": 1}, ('"\\n"', '"\\""'), ('"\t"', '"\n"', '"\\"')),
    judged("maxLength", {**S, "maxLength": 0}, "", "a"),
    Probe("type", S, ('"a"', '"\\n"', '"\\u0000"'), ('"\t"', '"\\x"', '"a', '"\\"')),
]

# What a pattern is, and texts of both kinds.
PATTERNS = [
    ("", "^[a-c]{2,3}$", ("ab", "abc", "a", "abcd", "xab", "abx")),
    ("", "^(foo|ba[rz])$", ("foo", "bar", "baz", "fo", "foobar")),
    ("", "^a-b_c d$", ("a-b_c d", "a-b")),
    (":search", "b", ("b", "abc", "a", "")),
    (":search", "^b", ("b", "bcd", "ab")),
    (":search", "b$", ("b", "ab", "ba")),
    (":search", "^a|b$", ("ax", "xb", "x")),
    (":search", "(^a|b)c$", ("ac", "xbc", "xac")),
    (":escapes", '^a"b$', ('a"b', "ab")),
    (":escapes", "^.{2}$", ("ab", 'a"', "\\\\", "a", "aé")),
    (":escapes", "^[^a]$", ("b", '"', "\\", "\n", "a", "é")),
    (":escapes", r"^\s$", (" ", "\t", "a")),
    (":wide", "^[α-ω]+$", ("αβ", "ab", "")),
    (":wide", "^[^\u2028]{2}$", ("ab", "é😀", "a", "a\u2028")),
    (":control", "^[^\n\r]{2}$", ("ab", "é", "a", "a\r", "a\n")),
    (":nested", "^(ab{1,2})*c$", ("c", "abbabc", "abbbc", "ab")),
    (":nested", PATTERNS_OF["ipv6"], ("::", "1::8", "1:2:3:4:5:6:7:8", ":2:3:4::8", "1::2::3")),
    (":nested", PATTERNS_OF["uri-reference"], ("a/b", "//a.b/c", "1:b", "//a:b/c", "//a@b@c/")),
    (":unicode", r"^\W$", ("-", "é", "a")),
    (":unicode", r"^[^\d]$", ("a", "٣", "3")),
    (":unicode", r"^\S$", ("a", "\xa0", " ")),
    (":lookaround", "^(?!a)[a-z]+$", ("ba", "ab")),
    (":lookaround", r"^(?=.*\d)[a-z\d]+$", ("a1", "ab")),
    (":lookaround", "(?<=a)b", ("ab", "cb")),
    (":irregular", r"^(a|b)\1$", ("aa", "ab", "a")),
    (":anchors", "a(^b|c)*$", ("ac", "b", "ab")),
    (":anchors", r"\bfoo\b", ("a foo", "afoo", "food")),
]
SHAPED = [judged(f"pattern{form}", {**S, "pattern": text}, *words) for form, text, words in PATTERNS]

# Classes that Python has no words for.
PROPERTIES = [
    _texts(f"pattern:property{mark}", {**typed, "pattern": pattern}, good, bad)
    for mark, typed in (("", S), (":union", {"type": ["string", "null"]}), (":untyped", {}))
    for pattern, good, bad in (
        # The last is a letter of Unicode 17, which the final check knows.
        (r"^[^0-9A-Z_a-z\p{L}\p{N}]$", ["-", " ", "€"], ["a", "é", "中", "٣", "_", "--", "\U00010940"]),
        (r"^\p{Lu}{2}$", ["AB", "ÄΩ"], ["Ab", "A", "A1"]),
        (r"^[^0-9\p{Nd}]{2}$", ["ab", "é-"], ["a1", "٣a", "a"]),
    )
]

# Format: texts that are of it, texts that are not.
FORMATS = {
    "date": (
        ["2024-02-29", "1999-12-31"],
        ["2024-13-01", "2024-1-1", "2021-02-29", "2023-04-31", "2100-02-29", "x"],
    ),
    "time": (["08:30:06Z", "08:30:06.28+01:30"], ["08:30", "25:00:00Z", "22:59:60Z", "x"]),
    "date-time": (
        ["2024-02-29T08:30:06Z", "1999-12-31T23:59:59.5-08:00"],
        ["2024-02-29", "2021-02-29T00:00:00Z", "1998-12-31T22:59:60Z", "x"],
    ),
    "duration": (["P1D", "PT5M", "P1Y2M3DT4H"], ["P", "1D", "x"]),
    "email": (["a@b.de", "first.last+tag@sub.example.com"], ["a", "@b.de", "a@"]),
    "hostname": (
        ["example.com", "a-b.c"],
        ["-a", "a_b", "a..b", "xn--X", "a" * 64, ".".join(["a" * 60] * 5)],
    ),
    "ipv4": (["1.2.3.4", "255.255.255.255", "0.0.0.0"], ["256.1.1.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (
        ["::1", "1:2:3:4:5:6:7:8", "fe80::1", "::ffff:1.2.3.4", "::"],
        ["x", "1:2", "1::2::3", "12345::", "::1.2.3.04"],
    ),
    "uuid": (["123e4567-e89b-12d3-a456-426614174000"], ["123e4567", "g23e4567-e89b-12d3-a456-426614174000"]),
    "uri": (["http://a.b/c?d=e#f", "urn:isbn:0451450523", "mailto:a@b.de"], ["a b", "/a", "//a.b"]),
    "uri-reference": (
        ["/a", "a/b?c", "http://a.b", "#f"],
        ["a b", "\\a", "a#b#c", "//a:b/c", "//a@b@c/", "1:b"],
    ),
    "json-pointer": (["", "/a/0", "/a~1b~0"], ["a", "/~2", "/a~"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["/a", "-1", "01"]),
    "iri": (["http://é.b/ü", "http://a.b"], ["a b", "/a"]),
    "iri-reference": (["/é", "a"], ["a b", "\\a"]),
    "idn-email": (["é@b.de", "a@b.de"], ["a", "@b.de"]),
    "idn-hostname": (["example.com", "bücher.de"], ["-a", "a..b"]),
    "regex": (["a+", "^b$"], ["(", "a{2,1}", "*"]),
    "uri-template": (["/a/{b}", "a"], ["{", "{a", "}"]),
}
FORMATTED = [_texts(f"format:{name}", {**S, "format": name}, *both) for name, both in FORMATS.items()]

FRAGMENTS = {"format": "date", "maxLength": 10, "minLength": 3, "pattern": "^[0-9-]+$"}


def _pair(first, second):
    schema = {**S, first: FRAGMENTS[first], second: FRAGMENTS[second]}
    shape = "+".join(sorted((first, second)))
    if "format" not in (first, second):
        return judged(shape, schema, "12", "123", "1234567890", "12345678901", "abc", "ab", "abcdefghijk")
    other = second if first == "format" else first
    if other == "pattern":
        return _texts(
            shape, {**S, "format": "date", "pattern": "^2"}, ["2024-02-29"], ["1999-12-31", "2", "x"]
        )
    short, long = "a@b.de", "abcdefgh@b.de"
    good, bad = ([short], [long, "a"]) if other == "maxLength" else ([long], [short, "abcdefghijk"])
    return _texts(shape, {**S, "format": "email", other: 8}, good, bad)


PAIRS = [_pair(*pair) for pair in combinations(sorted(FRAGMENTS), 2)]


def _standings():
    fragments = {"maxLength": 2, "minLength": 2, "pattern": "^[a-c]{2}$"}
    for keyword, value in fragments.items():
        yield judged(f"{keyword}:untyped", {keyword: value}, "ab", "a", "abc", 3, None, [1], {"a": 1})
        yield judged(
            f"{keyword}:union", {"type": ["string", "null"], keyword: value}, "ab", "a", "abc", None, 3
        )
        yield judged(f"{keyword}:foreign", {"type": "integer", keyword: value}, 1, 234, "ab")
    for form, text, words in PATTERNS:
        if form in (":search", ":escapes", ":unicode", ":wide", ":nested"):
            union = {"type": ["string", "null"], "pattern": text}
            yield judged(f"pattern{form}:union", union, *words, None, 3)
            yield judged(f"pattern{form}:untyped", {"pattern": text}, *words, None, 3)
    for name, (good, bad) in FORMATS.items():
        union = {"type": ["string", "null"], "format": name}
        yield _texts(f"format:{name}:union", union, [*good, None], [*bad, 3])
        yield _texts(f"format:{name}:untyped", {"format": name}, [*good, None, 3], bad)


PROBES = [*LENGTHS, *SHAPED, *PROPERTIES, *FORMATTED, *PAIRS, *_standings()]
