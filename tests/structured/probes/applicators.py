"""Schemas made of schemas: references, allOf, anyOf, oneOf, not, conditions, and what stands beside them."""

from __future__ import annotations

from tests.structured.probes.probe import judged

I, S, N = {"type": "integer"}, {"type": "string"}, {"type": "null"}  # noqa: E741
O = {"type": "object"}  # noqa: E741
HAS_A, HAS_B = {"required": ["a"]}, {"required": ["b"]}
POOL = (
    *(None, True, 0, 1, 2, 3, 4, 5, 6, 7, 9, 1.5, "", "a", "ab", "abc", "abcd", "b", [], [1], ["a"], [1, 2]),
    *(
        [1, "a"],
        [None],
        {},
        {"a": 1},
        {"a": "x"},
        {"b": 1},
        {"b": "x"},
        {"a": 1, "b": "x"},
        {"a": 1, "b": 2},
        {"c": 1},
    ),
    *({"a": 1, "c": 1}, {"a": 2}, {"a": 2, "b": "x"}, {"a": {"a": {}}}, {"a": {"a": 1}}),
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


def _single():
    yield judged("anyOf", {"anyOf": [I, S]}, *POOL)
    yield judged(
        "anyOf", {"anyOf": [{"type": "integer", "minimum": 3}, {**O, "properties": {"a": I}}, N]}, *POOL
    )
    only_a, only_b = (
        {**O, "properties": {name: I}, "required": [name], "additionalProperties": False} for name in "ab"
    )
    both = {**only_b, "properties": {"a": I, "b": S}, "required": ["a", "b"]}
    yield judged("anyOf", {"anyOf": [only_a, only_b, both]}, *POOL)
    yield judged(
        "anyOf", {"anyOf": [{"type": "integer", "maximum": 2}, {"type": "integer", "minimum": 6}]}, *POOL
    )
    yield judged("anyOf", {"anyOf": [{"enum": [1, "a"]}, {"type": "string", "pattern": "^b$"}, N]}, *POOL)
    yield judged(
        "anyOf",
        {"anyOf": [{"type": "array", "items": I}, {"type": "array", "items": S, "minItems": 1}]},
        *POOL,
    )
    for schema in APPLIED["not"]:
        yield judged("not", schema, *POOL)
    yield judged("not", {"not": {}}, *POOL)
    yield judged("if", APPLIED["if"][0], *POOL)
    yield judged("then", {"if": I, "then": {"minimum": 3}}, *POOL)
    yield judged("else", {"if": I, "else": S}, *POOL)
    yield judged("allOf:one", {"allOf": [I]}, *POOL)
    yield judged("allOf:one", {"allOf": [{**O, "properties": {"a": I}, "required": ["a"]}]}, *POOL)
    a, b = ({**O, "properties": {name: kind}, "required": [name]} for name, kind in (("a", I), ("b", S)))
    yield judged("allOf", {"allOf": [a, b]}, *POOL)
    yield judged("allOf", {"allOf": [a, {**O, "properties": {"a": {"minimum": 2}}}]}, *POOL)
    yield judged("allOf", {"allOf": [{"minimum": 3}, {"maximum": 5}]}, *POOL)
    yield judged("allOf", {"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, *POOL)
    yield judged("allOf", {"allOf": [{"maxLength": 3}, {"minLength": 2}]}, *POOL)
    yield judged("allOf", {"allOf": [{"enum": [1, "a"]}, {"enum": ["a", "b"]}]}, *POOL)
    yield judged("allOf", {"allOf": [{"anyOf": [I, S]}, {"anyOf": [S, N]}]}, *POOL)
    yield judged(
        "allOf", {"allOf": [{"type": "array", "items": {"type": ["integer", "string"]}}, {"items": I}]}, *POOL
    )
    closed = {**O, "properties": {"a": I, "b": S}, "additionalProperties": False}
    yield judged("allOf:closed", {"allOf": [closed, a]}, *POOL)
    yield judged(
        "allOf:closed", {"allOf": [{**O, "properties": {"a": I}, "additionalProperties": S}, a]}, *POOL
    )


def _one_of():
    yield judged("oneOf:types", {"oneOf": [I, S]}, *POOL)
    yield judged(
        "oneOf:types", {"oneOf": [{"type": ["integer", "null"]}, {"type": "array", "items": I}]}, *POOL
    )
    yield judged("oneOf:values", {"oneOf": [{"const": 1}, {"const": "a"}]}, *POOL)
    yield judged("oneOf:values", {"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, *POOL)
    branches = [
        {**O, "properties": {"k": {"const": kind}, "x": below}, "required": ["k"]}
        for kind, below in (("p", I), ("q", S))
    ]
    kinds = ({"k": "p"}, {"k": "q", "x": "s"}, {"k": "p", "x": "s"}, {"k": "r"}, {"x": 1}, {"k": "p", "x": 1})
    yield judged("oneOf:discriminator", {"oneOf": branches}, *kinds)
    yield judged(
        "oneOf:other",
        {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]},
        *POOL,
    )
    yield judged("oneOf:other", {"oneOf": [{**O, **HAS_A}, {**O, **HAS_B}]}, *POOL)
    yield judged("oneOf:other", {"oneOf": [{"multipleOf": 2}, {"minimum": 3}]}, *POOL)


def _references():
    for name in DEFS:
        yield judged("$ref", {"$ref": f"#/$defs/{name}", "$defs": DEFS}, *POOL)
    yield judged("$ref", {"$ref": "#/definitions/i", "definitions": DEFS}, *POOL)
    yield judged(
        "$ref:root", {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, I]}, *POOL, [[1], []], [["a"]]
    )
    loop = {"n": {**O, "properties": {"a": {"$ref": "#/$defs/n"}}, "additionalProperties": False}}
    yield judged("$ref", {"$ref": "#/$defs/n", "$defs": loop}, *POOL)
    yield judged("$ref:anchor", {"$ref": "#x", "$defs": {"x": {"$anchor": "x", **I}}}, *POOL)
    inner = {"x": {"$id": "http://example.com/inner", **I}}
    yield judged("$ref:uri", {"$id": "http://example.com/outer", "$ref": "inner", "$defs": inner}, *POOL)
    dynamic = {"d": {"$dynamicAnchor": "d", **I}}
    yield judged("$dynamicRef", {"$dynamicRef": "#d", "$defs": dynamic}, *POOL)


def _beside():
    for keyword, all_applied in APPLIED.items():
        for group, fragments in BESIDE.items():
            for applied in all_applied:
                yield from (
                    judged(f"{keyword}+{group}", {**fragment, **applied}, *POOL) for fragment in fragments
                )
    for group, fragments in BESIDE.items():
        for fragment in fragments:
            for branches in (
                [I, S],
                [{**O, **HAS_A}, N],
                [{**O, **HAS_A}, {**O, **HAS_B}],
                [{"const": 1}, {"const": 4}],
                [{"type": "array"}, I],
            ):
                yield judged(f"oneOf+{group}", {**fragment, "oneOf": branches}, *POOL)
    for keyword, all_applied in APPLIED.items():
        for other, others in APPLIED.items():
            if {keyword, other} & {"if", "then", "else"} == {keyword, other} or keyword == other:
                continue
            for applied in all_applied:
                schema = {**others[0], **applied}
                shown = other if keyword in ("if", "then", "else") else keyword
                yield judged(f"{shown}+applicator", schema, *POOL)
    for keyword in ("anyOf", "allOf", "$ref"):
        for applied in APPLIED[keyword]:
            yield judged("oneOf+applicator", {**applied, "oneOf": [I, S, O]}, *POOL)


PROBES = [judged("type", {}, *POOL), *_single(), *_one_of(), *_references(), *_beside()]
