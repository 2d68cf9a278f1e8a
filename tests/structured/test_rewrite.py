"""Each rewrite: the back end is wrong without it and right with it; any order of properties."""

import json
import random
import re
from itertools import permutations

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from gencli.structured.backend_choice import candidate, choose, rewritten_for
from gencli.structured.ecma_regex import parse_regex, whole
from gencli.structured.flat_schema import plain
from gencli.structured.grammar_tree import RegexError, show
from gencli.structured.output_spec import PlanRequest
from gencli.structured.pattern_sets import complement, finite_texts, texts_without
from gencli.structured.rewrite_objects import MAX_BRANCHED
from gencli.structured.rewrite_strings import anchored_patterns
from gencli.structured.schema_errors import GiveUp
from tests.helpers.refusal import refusal
from tests.structured.probes.acceptor import Refused, acceptor

I, S, O = {"type": "integer"}, {"type": "string"}, {"type": "object"}  # noqa: E741
AB = {"a": I, "b": S}
A = {**O, "properties": {"a": I}, "required": ["a"]}
B = {**O, "properties": {"b": S}, "required": ["b"]}
CLOSED = {**O, "properties": AB, "additionalProperties": False}
NAMED = {"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}}
OBJECT = {**O, "properties": AB}
LIST = {"type": "array"}
DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 7))

# name: schema, valid values, invalid ones
XGRAMMAR = {
    "two lower bounds": ({"allOf": [{**I, "minimum": 5}, {"minimum": 2}]}, [5, 9], [2, 4]),
    "no leap second at ten": (
        {**S, "format": "date-time"},
        ["2024-02-29T08:30:06Z", "1999-12-31T23:59:59.5-08:00"],
        ["1990-02-31T15:59:59Z", "1998-12-31T22:59:60Z"],
    ),
    "bytes of an address": ({**S, "format": "ipv4"}, ["1.2.3.4"], ["01.2.3.4", "256.1.1.1"]),
    "allOf of objects": ({"allOf": [A, B]}, [{"a": 1, "b": "x"}], [{"a": 1}, {"a": 1, "b": 2}]),
    "allOf of numbers": ({**I, "allOf": [{"minimum": 3}, {"maximum": 5}]}, [3, 5], [2, 6]),
    "allOf with $ref": (
        {"allOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}},
        [{"a": 1, "b": "x"}],
        [{"a": 1}, {"b": "x"}],
    ),
    "$ref with siblings": ({"$ref": "#/$defs/i", "minimum": 3, "$defs": {"i": I}}, [3], [2, "a"]),
    "$anchor": ({"$ref": "#n", "$defs": {"n": {"$anchor": "n", **I}}}, [1], ["a"]),
    "enum and type": ({**S, "enum": ["a", 1]}, ["a"], [1]),
    "enum and the rest": ({"enum": [1, 5, "x"], "minimum": 3}, [5, "x"], [1]),
    "anyOf beside properties": (
        {**OBJECT, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": "x"}],
        [{}],
    ),
    "required without properties": ({**O, "required": ["a"]}, [{"a": 1}, {"a": []}], [{}]),
    "no type": ({"minimum": 3}, [3, "a", None, {}], [2]),
    "a lookahead where there is one pattern only": (
        {**S, "pattern": "^(?!ab)[a-z]+$"},
        ["ac", "b"],
        ["abc", "ab", "A"],
    ),
    "old tuples": (
        {"$schema": DRAFT_7, **LIST, "items": [I, S], "additionalItems": False},
        [[1, "a"], [1]],
        [["a"], [1, "a", 2]],
    ),
    "old bounds": (
        {"$schema": DRAFT_4, "type": "number", "minimum": 3, "exclusiveMinimum": True},
        [3.5, 4],
        [3, 2],
    ),
    "bounds of whole numbers": ({**I, "minimum": 0.5, "exclusiveMaximum": 2.5}, [1, 2], [0, 3]),
    "whole multiples": ({"type": "number", "multipleOf": 5}, [5, -10, 0], [2.5, 7]),
    "an empty branch": ({"anyOf": [{**A, "properties": {"a": False}}, I]}, [1], [{"a": 1}]),
}

LLGUIDANCE = {
    "all readings of a class": ({**S, "pattern": "^\\W$"}, ["-", " "], ["a", "é"]),
    "a negative lookahead": ({**S, "pattern": "^(?!ab)[a-z]+$"}, ["ac", "b"], ["abc", "ab", "A"]),
    "lookaheads": ({**S, "pattern": "^(?=.*\\d)(?=.*[a-z]).{3,}$"}, ["a12", "12b"], ["abc", "123", "a1"]),
    "a format as a pattern": ({**S, "format": "json-pointer"}, ["/a/0", ""], ["a", "/~2"]),
    "a format with IPv4 in it": ({**S, "format": "ipv6"}, ["::ffff:1.2.3.4", "::1"], ["1::2::3", "x"]),
    "days of a month": ({**S, "format": "date"}, ["2024-02-29", "2023-12-31"], ["2023-02-29", "2024-04-31"]),
    "length of a host name": (
        {**S, "format": "hostname"},
        ["a-b.c", "x"],
        [".".join(["a" * 60] * 5), "xn--X"],
    ),
    "a dynamic reference": ({"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", **I}}}, [1], ["a"]),
    "oneOf of constants": ({"oneOf": [{"const": 1}, {"const": 2}]}, [1, 2], [3]),
    "oneOf that overlaps": ({"oneOf": [{**I, "minimum": 3}, {**I, "maximum": 5}]}, [1, 9], [3, 5]),
    "oneOf of required": ({**OBJECT, "oneOf": [A, B]}, [{"a": 1}, {"b": "x"}], [{"a": 1, "b": "x"}, {}]),
    "not a type": ({"type": ["integer", "string"], "not": S}, [1], ["a"]),
    "not a number": ({**I, "not": {"const": 13}}, [12, 14, -1], [13]),
    "not these texts": ({**S, "not": {"enum": ["ab", "c"]}}, ["a", "abc", "", "é"], ["ab", "c"]),
    "not a pattern": ({**S, "not": {"pattern": "^x-"}}, ["x", "y-"], ["x-", "x-a"]),
    "not required": ({**OBJECT, "not": {"required": ["a"]}}, [{"b": "x"}, {}], [{"a": 1}]),
    "if and then": ({**OBJECT, **NAMED}, [{"a": 1, "b": "x"}, {"a": 2}, {}], [{"a": 1}]),
    "dependentRequired": ({**OBJECT, "dependentRequired": {"a": ["b"]}}, [{"b": "x"}, {}], [{"a": 1}]),
    "dependentSchemas": ({**OBJECT, "dependentSchemas": {"a": B}}, [{"b": "x"}, {}], [{"a": 1}]),
    "dependencies": (
        {"$schema": DRAFT_7, **O, "properties": AB, "dependencies": {"a": ["b"]}},
        [{"b": "x"}, {}],
        [{"a": 1}],
    ),
    "propertyNames": ({**O, "propertyNames": {"pattern": "^[ab]$"}}, [{"a": 1}, {}], [{"c": 1}]),
    "a lookahead in names": (
        {**O, "patternProperties": {"^(?!@@)[@a-z]+$": {}}, "additionalProperties": False},
        [{"@a": 1}, {"a": 1}, {}],
        [{"@@a": 1}, {"A": 1}],
    ),
    "a lookahead in propertyNames": (
        {**O, "propertyNames": {"pattern": "^(?!x-)"}},
        [{"x": 1}, {"a-x": 1}, {"": 1}],
        [{"x-a": 1}],
    ),
    "names that two patterns match": (
        {
            **O,
            "properties": {"ab": {}},
            "patternProperties": {"^a": I, "b$": S},
            "additionalProperties": False,
        },
        [{"a": 1}, {"b": "x"}, {}],
        [{"ab": 1}, {"ab": "x"}, {"acb": 1}, {"acb": "x"}, {"a": "x"}, {"b": 1}, {"c": 1}],
    ),
    "some property": ({**CLOSED, "minProperties": 2}, [{"a": 1, "b": "x"}], [{}, {"a": 1}]),
    "unevaluatedProperties": (
        {**A, "allOf": [B], "unevaluatedProperties": False},
        [{"a": 1, "b": "x"}],
        [{"a": 1, "b": "x", "c": 1}],
    ),
    "contains": ({**LIST, "contains": {"const": 1}, "maxItems": 3}, [[1], ["a", 1]], [[], ["a"]]),
    "uniqueItems": ({**LIST, "items": {"enum": [1, 2]}, "uniqueItems": True}, [[], [2, 1]], [[1, 1]]),
    "contains in an array without a bound": (
        {**LIST, "contains": {"const": 1}, "minContains": 2, "minItems": 3},
        [[1, "a", 1, 1], ["a", 1, 2, 1]],
        [[1, 1], ["a", 1, "b"], [1, 2, 3, 4]],
    ),
    "uniqueItems of many values": (
        {**LIST, "items": {"enum": [*"abcdefghijkl", 1]}, "uniqueItems": True, "minItems": 2},
        [["l", "a", "k"], [1, "b"], [*"lkjihgfedcba", 1]],
        [["a"], ["a", "b", "a"], ["m", "a"]],
    ),
    "uniqueItems of values of which some are refused": (
        {**LIST, "items": {**S, "enum": ["a", "bbb", 1, "c"], "maxLength": 2}, "uniqueItems": True},
        [["a"], ["c", "a"], []],
        [["bbb"], [1], ["a", "a"]],
    ),
    "uniqueItems of booleans": (
        {"type": ["array", "null"], "items": {"type": "boolean"}, "uniqueItems": True},
        [[True, False], [False], None],
        [[True, True], [None]],
    ),
    "arrays that are counted, where others stand around them": (
        {
            **O,
            "properties": {
                "a": I,
                "list": {**LIST, "items": {**LIST, "contains": S}, "maxItems": 2},
                "b": {"anyOf": [I, {"$ref": "#/$defs/set"}]},
            },
            "patternProperties": {"^x": {"$ref": "#/$defs/set"}},
            "additionalProperties": {"type": "null"},
            "required": ["b"],
            "$defs": {"set": {**LIST, "items": {"enum": [1, 2, 3]}, "uniqueItems": True}},
        },
        [{"b": 1}, {"a": 1, "list": [["a"], [1, "b"]], "b": [3, 1]}, {"b": [], "xs": [2], "y": None}],
        [
            *({"a": 1}, {"list": [["a"], [1]], "b": 1}, {"list": [["a"]] * 3, "b": 1}, {"b": [1, 1]}),
            *({"b": 1, "xs": [2, 2]}, {"b": 1, "y": []}, {"b": None}),
        ],
    ),
}

CASES = {name: ("xgrammar", *case) for name, case in XGRAMMAR.items()}


CASES |= {name: ("llguidance", *case) for name, case in LLGUIDANCE.items()}


def verdict(backend, schema, valid, invalid):
    try:
        accepts = acceptor(backend, schema)
    except Refused:
        return "refused"
    texts = [[json.dumps(value, ensure_ascii=False) for value in values] for values in (valid, invalid)]
    return "right" if all(map(accepts, texts[0])) and not any(map(accepts, texts[1])) else "wrong"


NAMES = [
    {**O, "propertyNames": {"enum": ["p", "q"]}, "additionalProperties": I},
    {**O, "propertyNames": {"const": "p"}, "minProperties": 1},
    {**O, "propertyNames": {"enum": ["p", "q"]}, "patternProperties": {"^p": I}, "required": ["p"]},
    {**O, "patternProperties": {"^(p|q)1?$": I}, "required": ["p"], "additionalProperties": False},
]


def test_texts_of_a_pattern_are_listed_where_they_are_few():
    for pattern, texts in [
        ("^(a|b)1?$", ["a", "a1", "b", "b1"]),
        ("^a{2,3}$", ["aa", "aaa"]),
        ("^a{300}$", None),
        ("^a{0,300}$", None),
        ("^a*$", None),
    ]:
        assert finite_texts(pattern, 256) == texts, pattern


def test_names_of_a_finite_set_come_once_and_no_other_does():
    for schema in NAMES:
        for backend in ("xgrammar", "llguidance"):
            found = candidate(schema, backend)
            accepts = acceptor(backend, json.loads(found.variant.constraint.text))
            assert accepts('{"p": 1}'), (backend, schema)
            for text in ('{"p": 1, "p": 2}', '{"p": 1, }', '{"p": 1, "r": 1}'):
                assert not accepts(text), (backend, schema, text)


def test_the_values_are_the_same():
    for name in sorted(set(CASES) - {"all readings of a class"}):
        backend, schema, valid, invalid = CASES[name]
        kind = Draft202012Validator(
            plain(rewritten_for(schema, backend, PlanRequest(extra=True))[0]), format_checker=FormatChecker()
        )
        assert all(map(kind.is_valid, valid)), name
        assert not any(map(kind.is_valid, invalid)), name


def test_a_pattern_searches_where_the_back_end_anchors():
    schema, valid, invalid = {**S, "pattern": "^[a-z][0-9]"}, ["a1", "a1 and more"], ["1a", "", "xa1"]
    found = candidate(schema, "xgrammar")
    assert verdict("xgrammar", schema, valid, invalid) == "wrong"
    assert verdict("xgrammar", json.loads(found.variant.constraint.text), valid, invalid) == "right"
    assert (found.loose, found.is_exact) == (0, False)  # what needs a backslash is not generated


def test_lengths_are_never_too_long_for_xgrammar_nor_raw():
    found = candidate({**S, "maxLength": 2}, "xgrammar")
    accepts = acceptor("xgrammar", json.loads(found.variant.constraint.text))
    assert [accepts(text) for text in ('"ab"', '"é😀"', '"abc"', '"\t"', '"\\"')] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert (found.loose, found.is_exact) == (0, False)  # "\n" is valid, and not generated


def test_additional_properties_are_generated_only_on_request():
    for backend in ["xgrammar", "llguidance"]:
        schema = {**O, "properties": {"a": I}}
        closed, opened = (
            candidate(schema, backend, PlanRequest(extra=extra)).variant.constraint.text
            for extra in (False, True)
        )
        assert not acceptor(backend, json.loads(closed))('{"a":1,"z":1}'), backend
        assert acceptor(backend, json.loads(opened))('{"a":1,"z":1}'), backend
        assert acceptor(backend, {**O})('{"z":1}'), backend


def test_properties_come_in_the_order_of_the_schema():
    for backend in ["xgrammar", "llguidance"]:
        schema = {
            "allOf": [{**O, "properties": {"z": I, "b": I}}, {"properties": {"a": I}, "required": ["a", "z"]}]
        }
        accepts = acceptor(backend, json.loads(candidate(schema, backend).variant.constraint.text))
        assert accepts('{"z":1,"b":2,"a":3}'), backend
        assert not accepts('{"a":3,"z":1,"b":2}'), backend


def test_recursion_stays_finite():
    node = {**O, "properties": {"next": {"$ref": "#/$defs/n"}, "v": I}}
    schema = {
        "$defs": {"n": node},
        "allOf": [{"$ref": "#/$defs/n"}, {"properties": {"next": {"required": ["v"]}}}],
    }
    found = candidate(schema, "llguidance")
    accepts = acceptor("llguidance", json.loads(found.variant.constraint.text))
    assert accepts('{"next":{"next":{},"v":1}}')
    assert not accepts('{"next":{"next":{}}}')
    assert found.is_exact


IMPOSSIBLE = {"type": "object", "enum": ["x"]}
ENDLESS = {**O, "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}


def test_an_optional_part_that_nothing_satisfies_is_left_out():
    for backend in ["xgrammar", "llguidance"]:
        for schema, valid, invalid in [
            (
                {"type": ["array", "null"], "contains": {"$ref": "#/$defs/n"}, "$defs": {"n": ENDLESS}},
                [None],
                [[]],
            ),
            ({**CLOSED, "properties": {"a": I, "b": IMPOSSIBLE}}, [{}, {"a": 1}], [{"b": "x"}, {"b": {}}]),
            (
                {**O, "patternProperties": {"^a": IMPOSSIBLE}, "additionalProperties": False},
                [{}],
                [{"a": "x"}],
            ),
            ({**O, "additionalProperties": IMPOSSIBLE}, [{}], [{"a": "x"}]),
            ({"type": "array", "items": IMPOSSIBLE}, [[]], [["x"], [{}]]),
            (
                {"anyOf": [I, {**CLOSED, "properties": {"a": IMPOSSIBLE}, "required": ["a"]}]},
                [1],
                [{"a": "x"}, {}],
            ),
            (
                {**CLOSED, "properties": {"a": I, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": ENDLESS}},
                [{}, {"a": 1}],
                [{"b": {}}],
            ),
            (
                {"type": "array", "items": {"anyOf": [I, {"$ref": "#/$defs/n"}]}, "$defs": {"n": ENDLESS}},
                [[], [1]],
                [[{}]],
            ),
        ]:
            found = candidate(schema, backend)
            assert verdict(backend, json.loads(found.variant.constraint.text), valid, invalid) == "right", (
                backend,
                schema,
            )
            assert found.is_exact, (backend, schema)
            texts = {finding.reason for finding in found.variant.audit.findings}
            assert "the rewritten schema no longer has it" not in texts, (backend, schema)
    endless = {**CLOSED, "properties": {"a": I, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": ENDLESS}}
    assert "$defs" not in json.loads(candidate(endless, "llguidance").variant.constraint.text)


def test_what_is_too_deep_is_left_as_it_is():
    schema = {"not": {}}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(GiveUp, match="deep"):
        rewritten_for(schema, "llguidance")


PATTERNS = [
    "b",
    "^a|b$",
    "(^a|b)c$",
    r"^[\w.-]+@\w+$",
    "^a{2}b?$",
    "^$",
    "",
    r"^[^\s,]+$",
    r"a\.b",
    "^(a|b)*$",
    "[^b]",
]


def test_an_anchored_pattern_finds_what_a_search_finds():
    for pattern in PATTERNS:
        rng = random.Random(1)
        trees = whole(parse_regex(pattern))
        words = ["".join(rng.choices("abc@.- ,", k=rng.randint(0, 6))) for _ in range(300)]
        for word in words:
            assert all(re.fullmatch(show(tree), word) for tree in trees) == bool(re.search(pattern, word)), (
                word
            )


def test_what_is_not_regular_is_refused():
    for pattern in [r"(a)\1", "a**", "(", "[b-a]", "x{2,1}{3}", r"\p{Nonsense}", r"\pL"]:
        assert refusal(RegexError, parse_regex, pattern), pattern


def test_lookaheads_at_the_start_become_patterns():
    for pattern in ["^(?!foo)", "^(?!foo$)f", "^(?!a|bc)[a-z]*$", "^(?=a)(?!ab)"]:
        rng = random.Random(2)
        for word in ["".join(rng.choices("abcfo", k=rng.randint(0, 4))) for _ in range(300)]:
            expected = bool(re.search(pattern, word))
            assert all(re.search(one, word) for one in anchored_patterns(parse_regex(pattern))) == expected, (
                word
            )


def test_all_texts_but_a_few():
    pattern = re.compile(texts_without(["ab", "a", "xyz"]))
    assert [bool(pattern.search(text)) for text in ("a", "ab", "xyz", "", "abc", "xy", "b\n")] == [
        False
    ] * 3 + [True] * 4
    assert [bool(re.search(complement("^ab"), text)) for text in ("ab", "abc", "a", "b", "")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    with pytest.raises(GiveUp):
        complement("a.*b")


def test_formats_without_a_length_are_left_to_the_back_end_that_gives_them_one():
    mail = {**O, "properties": {"mail": {**S, "format": "email"}, "day": {**S, "format": "uuid"}}}
    assert choose(mail).variants[0].audit.backend == "llguidance"
    assert "without a length" in choose(mail).reason
    assert choose({**S, "format": "uuid"}).variants[0].audit.backend == "xgrammar"
    unlisted = {
        **O,
        "properties": {"mail": {**S, "format": "email"}, "a": {"type": "array", "uniqueItems": True}},
    }
    assert not any(one.audit.is_exact for one in choose(unlisted).variants)


def test_a_part_that_cannot_be_enforced_leaves_the_rest_of_the_pattern_enforced():
    for pattern, part, good, bad in [
        (r"""^(["'])\d+\1$""", r"\1", "'12'", "'ab'"),
        (r"^(?<q>a|b)-\k<q>$", r"\k<q>", "a-a", "a-c"),
        (r"^(?!(.)\1)[a-c]{2}$", r"(?!(.)\1)", "ab", "ad"),
    ]:
        for backend in ("xgrammar", "llguidance"):
            found = candidate({**S, "pattern": pattern}, backend).variant
            (one,) = [one for one in found.audit.findings if one.keyword == "pattern"]
            assert (one.verdict, one.reason) == (
                "check",
                f"the mask enforces all of the pattern except {part}",
            )
            written = json.loads(found.constraint.text)["pattern"]
            assert re.search(written, good), pattern
            assert not re.search(written, bad), pattern


BOTH = ["xgrammar", "llguidance"]
ORDERED_VALUES = {"a": 1, "b": [1], "c": {"x": 1, "y": None}, "d": True}
INNER = {**O, "properties": {"x": I, "y": {"type": "null"}}, "required": ["x", "y"]}
INNER = {**INNER, "additionalProperties": False}
PROPERTIES = {"a": I, "b": {"type": "array", "items": I}, "c": INNER, "d": {"type": "boolean"}}
ORDERED = {**O, "properties": PROPERTIES, "required": ["a", "c"], "additionalProperties": False}


def many(count, **more):
    return {**O, "properties": {f"p{n}": I for n in range(count)}, "required": ["p0"], **more}


def accepts(backend, schema, **options):
    return acceptor(
        backend, json.loads(candidate(schema, backend, PlanRequest(**options)).variant.constraint.text)
    )


def shuffled(value, seed):
    """With the properties of all objects in another order."""
    if isinstance(value, dict):
        names = random.Random(seed).sample(list(value), len(value))
        return {name: shuffled(value[name], seed) for name in names}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


def test_each_order_is_allowed_inside_too():
    for backend in BOTH:
        check = accepts(backend, ORDERED, any_order=True)
        for names in permutations(ORDERED_VALUES):
            assert check(json.dumps({name: ORDERED_VALUES[name] for name in names})), names
        assert check('{"c": {"y": null, "x": 1}, "a": 1}'), backend


def test_what_is_missing_or_stands_twice_is_refused_in_any_order():
    for backend in BOTH:
        for text in [
            "{}",
            '{"a": 1}',
            '{"a": 1, "c": {"x": 1}}',
            '{"c": {"x": 1, "y": null}, "a": 1, "a": 2}',
            '{"d": 1}',
        ]:
            assert not accepts(backend, ORDERED, any_order=True)(text), (backend, text)


def test_without_it_the_order_is_that_of_the_schema():
    for backend in BOTH:
        check = accepts(backend, ORDERED)
        assert check('{"a": 1, "c": {"x": 1, "y": null}}'), backend
        assert not check('{"c": {"x": 1, "y": null}, "a": 1}'), backend


def test_llguidance_takes_any_order_of_many_properties():
    for count in [5, 16, 64]:
        check = accepts("llguidance", many(count), any_order=True)
        whole = {f"p{n}": n for n in range(count)}
        for seed in range(3):
            text = json.dumps(shuffled(whole, seed))
            assert check(text), count
            assert not check(text[:-1] + ', "p1": 1}'), count
        assert check('{"p3": 1, "p0": 2}'), count
        assert not check('{"p3": 1}'), count


def test_what_is_too_large_keeps_the_order_of_the_schema_and_the_audit_says_so():
    for count, backend in [(MAX_BRANCHED + 1, "xgrammar"), (65, "llguidance"), (65, "xgrammar")]:
        found = candidate(many(count), backend, PlanRequest(any_order=True))
        (note,) = (one.reason for one in found.variant.audit.findings if one.pointer == "/properties")
        assert note.startswith("in the schema's order: there are more than"), count
        assert not found.is_exact, count
        check = acceptor(backend, json.loads(found.variant.constraint.text))
        assert check('{"p0": 0, "p1": 1}'), count
        assert not check('{"p1": 1, "p0": 0}'), count


def test_a_larger_object_is_left_to_the_back_end_that_takes_any_order():
    assert choose(many(MAX_BRANCHED), PlanRequest(any_order=True)).variants[0].audit.backend == "xgrammar"
    assert (
        choose(many(MAX_BRANCHED + 1), PlanRequest(any_order=True)).variants[0].audit.backend == "llguidance"
    )
    assert choose(many(MAX_BRANCHED + 1)).variants[0].audit.backend == "xgrammar"


def test_a_pattern_and_free_names_come_before_declared_ones():
    schema = {**O, "properties": {"xa": I, "b": I}, "required": ["b"], "patternProperties": {"^x": S}}
    schema = {**schema, "properties": {"b": I}, "additionalProperties": {"type": "null"}}
    found = candidate(schema, "llguidance", PlanRequest(any_order=True))
    assert found.is_exact
    check = acceptor("llguidance", json.loads(found.variant.constraint.text))
    assert check('{"y": null, "x1": "a", "b": 1, "x2": "b"}')
    for wrong in ('{"x1": 1, "b": 1}', '{"y": 1, "b": 1}', '{"b": null}', '{"x1": "a"}'):
        assert not check(wrong)


def test_below_what_only_the_back_end_can_write_the_order_is_that_of_the_schema_and_the_audit_says_so():
    node = {**INNER, "properties": {**INNER["properties"], "below": {"$ref": "#/$defs/odd"}}}
    odd = {**O, "patternProperties": {r"(a)\1": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
    schema = {**O, "properties": {"n": {"$ref": "#/$defs/node"}, "i": I}, "additionalProperties": False}
    found = candidate(
        {**schema, "$defs": {"node": node, "odd": odd}}, "llguidance", PlanRequest(any_order=True)
    )
    reasons = {one.pointer: one.reason for one in found.variant.audit.findings}
    assert reasons["/$defs/node/properties"] == "in the schema's order, because the part around it is"
    check = acceptor("llguidance", json.loads(found.variant.constraint.text))
    assert check('{"i": 1, "n": {"x": 1, "y": null}}')
    assert not check('{"i": 1, "n": {"y": null, "x": 1}}')


def test_properties_in_any_order_are_counted():
    for least, most in [(2, 3), (0, 2), (3, None)]:
        bounds = {"minProperties": least, **({} if most is None else {"maxProperties": most})}
        for rest, names in ((False, "cdea"), (I, "czya")):
            schema = {**O, "properties": dict.fromkeys("abcde", I), "required": ["a"], **bounds}
            found = candidate(
                {**schema, "additionalProperties": rest}, "llguidance", PlanRequest(any_order=True)
            )
            check = acceptor("llguidance", json.loads(found.variant.constraint.text))
            assert found.is_exact, least
            for count in range(1, 5):
                text = json.dumps(dict.fromkeys(names[-count:], 1))
                assert check(text) == (least <= count <= (most or 9)), text


def test_the_audit_of_an_exact_schema_stays_exact():
    found = candidate(ORDERED, "llguidance", PlanRequest(any_order=True))
    assert found.is_exact
    assert {one.verdict for one in found.variant.audit.findings} == {"mask"}
