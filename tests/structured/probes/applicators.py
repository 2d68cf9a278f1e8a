"""Schemas made of schemas: references, allOf, anyOf, oneOf, not, conditions, and what stands beside them."""

from __future__ import annotations

import json

from tests.structured.probes.probe import judged

I, S, N = {"type": "integer"}, {"type": "string"}, {"type": "null"}  # noqa: E741
O = {"type": "object"}  # noqa: E741
HAS_A, HAS_B = {"required": ["a"]}, {"required": ["b"]}
POOL = tuple(
    json.loads("""[
    null, true, 0, 1, 2, 3, 4, 5, 6, 7, 9, 1.5, "", "a", "ab", "abc", "abcd", "b", [], [1], ["a"], [1, 2],
    [1, "a"], [null], {}, {"a": 1}, {"a": "x"}, {"b": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": 2},
    {"c": 1}, {"a": 1, "c": 1}, {"a": 2}, {"a": 2, "b": "x"}, {"a": {"a": {}}}, {"a": {"a": 1}}
]""")
)
DEFS = {"i": I, "m": {"type": "integer", "minimum": 3}, "o": {**O, "properties": {"a": I}, "required": ["a"]}}
ALL = {**DEFS, "u": {"maximum": 5, "maxLength": 3, "maxItems": 1}, "d": {"$dynamicAnchor": "d", "maximum": 5}}
# One fragment of each group: what may stand beside an applicator.
BESIDE = {
    "type": [I, S, O],
    "number": [{"minimum": 3}, {"maximum": 4}, {"multipleOf": 2}],
    "string": [{"maxLength": 2}, {"pattern": "^a"}],
    "array": [{"items": I}, {"minItems": 1}],
    "object": [
        {"properties": {"a": I, "b": S}},
        {"required": ["a"]},
        {"properties": {"a": I}, "additionalProperties": False},
    ],
    "values": [{"enum": [1, 3, 9, "a", "abc", {"a": 1}, {"a": 2}]}],
}
APPLIED = {
    "anyOf": [
        {
            "anyOf": [
                {"minimum": 3, "maxLength": 1, "maxItems": 1, "required": ["a"]},
                {"const": 1},
                {"const": {"c": 1}},
            ]
        }
    ],
    "allOf": [{"allOf": [{"maximum": 5, "minLength": 1, "maxItems": 1}, {"minimum": 2, "maxLength": 3}]}],
    "not": [
        {"not": {"enum": [1, "a", {"a": 1}]}},
        {"not": {"type": "integer"}},
        {"not": {"required": ["b"]}},
    ],
    "if": [{"if": {"properties": {"a": {"const": 1}}}, "then": HAS_B, "else": {"maxProperties": 1}}],
    "then": [{"if": {"properties": {"a": {"const": 1}}}, "then": HAS_B}],
    "else": [{"if": {"properties": {"a": {"const": 1}}}, "else": HAS_B}],
    "$ref": [
        {"$ref": "#/$defs/m", "$defs": ALL},
        {"$ref": "#/$defs/o", "$defs": ALL},
        {"$ref": "#/$defs/u", "$defs": ALL},
    ],
    "$dynamicRef": [{"$dynamicRef": "#d", "$defs": ALL}],
}


def pooled(shape, schema):
    return judged(shape, schema, *POOL)


def _single():
    yield pooled("anyOf", {"anyOf": [I, S]})
    yield pooled("anyOf", {"anyOf": [{"type": "integer", "minimum": 3}, {**O, "properties": {"a": I}}, N]})
    only_a, only_b = (
        {**O, "properties": {name: I}, "required": [name], "additionalProperties": False} for name in "ab"
    )
    both = {**only_b, "properties": {"a": I, "b": S}, "required": ["a", "b"]}
    yield pooled("anyOf", {"anyOf": [only_a, only_b, both]})
    yield pooled("anyOf", {"anyOf": [{"type": "integer", "maximum": 2}, {"type": "integer", "minimum": 6}]})
    yield pooled("anyOf", {"anyOf": [{"enum": [1, "a"]}, {"type": "string", "pattern": "^b$"}, N]})
    yield pooled(
        "anyOf", {"anyOf": [{"type": "array", "items": I}, {"type": "array", "items": S, "minItems": 1}]}
    )
    for schema in APPLIED["not"]:
        yield pooled("not", schema)
    yield pooled("not", {"not": {}})
    yield pooled("if", APPLIED["if"][0])
    yield pooled("then", {"if": I, "then": {"minimum": 3}})
    yield pooled("else", {"if": I, "else": S})
    yield pooled("allOf:one", {"allOf": [I]})
    yield pooled("allOf:one", {"allOf": [{**O, "properties": {"a": I}, "required": ["a"]}]})
    a, b = ({**O, "properties": {name: kind}, "required": [name]} for name, kind in (("a", I), ("b", S)))
    yield pooled("allOf", {"allOf": [a, b]})
    yield pooled("allOf", {"allOf": [a, {**O, "properties": {"a": {"minimum": 2}}}]})
    yield pooled("allOf", {"allOf": [{"minimum": 3}, {"maximum": 5}]})
    yield pooled("allOf", {"allOf": [{"pattern": "a"}, {"pattern": "b"}]})
    yield pooled("allOf", {"allOf": [{"maxLength": 3}, {"minLength": 2}]})
    yield pooled("allOf", {"allOf": [{"enum": [1, "a"]}, {"enum": ["a", "b"]}]})
    yield pooled("allOf", {"allOf": [{"anyOf": [I, S]}, {"anyOf": [S, N]}]})
    yield pooled(
        "allOf", {"allOf": [{"type": "array", "items": {"type": ["integer", "string"]}}, {"items": I}]}
    )
    closed = {**O, "properties": {"a": I, "b": S}, "additionalProperties": False}
    yield pooled("allOf:closed", {"allOf": [closed, a]})
    yield pooled("allOf:closed", {"allOf": [{**O, "properties": {"a": I}, "additionalProperties": S}, a]})


def _one_of():
    yield pooled("oneOf:types", {"oneOf": [I, S]})
    yield pooled("oneOf:types", {"oneOf": [{"type": ["integer", "null"]}, {"type": "array", "items": I}]})
    yield pooled("oneOf:values", {"oneOf": [{"const": 1}, {"const": "a"}]})
    yield pooled("oneOf:values", {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]})
    branches = [
        {**O, "properties": {"k": {"const": kind}, "x": below}, "required": ["k"]}
        for kind, below in (("p", I), ("q", S))
    ]
    kinds = ({"k": "p"}, {"k": "q", "x": "s"}, {"k": "p", "x": "s"}, {"k": "r"}, {"x": 1}, {"k": "p", "x": 1})
    yield judged("oneOf:discriminator", {"oneOf": branches}, *kinds)
    yield pooled(
        "oneOf:other", {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]}
    )
    yield pooled("oneOf:other", {"oneOf": [{**O, **HAS_A}, {**O, **HAS_B}]})
    yield pooled("oneOf:other", {"oneOf": [{"multipleOf": 2}, {"minimum": 3}]})


def _references():
    for name in DEFS:
        yield pooled("$ref", {"$ref": f"#/$defs/{name}", "$defs": DEFS})
    yield pooled("$ref", {"$ref": "#/definitions/i", "definitions": DEFS})
    yield judged(
        "$ref:root", {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, I]}, *POOL, [[1], []], [["a"]]
    )
    loop = {"n": {**O, "properties": {"a": {"$ref": "#/$defs/n"}}, "additionalProperties": False}}
    yield pooled("$ref", {"$ref": "#/$defs/n", "$defs": loop})
    yield pooled("$ref:anchor", {"$ref": "#x", "$defs": {"x": {"$anchor": "x", **I}}})
    inner = {"x": {"$id": "http://example.com/inner", **I}}
    yield pooled("$ref:uri", {"$id": "http://example.com/outer", "$ref": "inner", "$defs": inner})
    dynamic = {"d": {"$dynamicAnchor": "d", **I}}
    yield pooled("$dynamicRef", {"$dynamicRef": "#d", "$defs": dynamic})


def _beside():
    for keyword, all_applied in APPLIED.items():
        for group, fragments in BESIDE.items():
            for applied in all_applied:
                yield from (pooled(f"{keyword}+{group}", {**fragment, **applied}) for fragment in fragments)
    for group, fragments in BESIDE.items():
        for fragment in fragments:
            for branches in (
                [I, S],
                [{**O, **HAS_A}, N],
                [{**O, **HAS_A}, {**O, **HAS_B}],
                [{"const": 1}, {"const": 4}],
                [{"type": "array"}, I],
            ):
                yield pooled(f"oneOf+{group}", {**fragment, "oneOf": branches})
    for keyword, all_applied in APPLIED.items():
        for other, others in APPLIED.items():
            if {keyword, other} & {"if", "then", "else"} == {keyword, other} or keyword == other:
                continue
            for applied in all_applied:
                schema = {**others[0], **applied}
                shown = other if keyword in ("if", "then", "else") else keyword
                yield pooled(f"{shown}+applicator", schema)
    for keyword in ("anyOf", "allOf", "$ref"):
        for applied in APPLIED[keyword]:
            yield pooled("oneOf+applicator", {**applied, "oneOf": [I, S, O]})


PROBES = [pooled("type", {}), *_single(), *_one_of(), *_references(), *_beside()]
