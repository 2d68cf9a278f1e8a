"""Properties, their names and their number."""

from __future__ import annotations

import json
from itertools import combinations

from tests.structured.probes.probe import Probe, judged

O = {"type": "object"}  # noqa: E741
I, S = {"type": "integer"}, {"type": "string"}  # noqa: E741
AB = {"a": I, "b": S}
POOL = tuple(
    json.loads("""[
    {}, {"a": 1}, {"a": "x"}, {"b": "x"}, {"b": 1}, {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"c": 1},
    {"c": "x"}, {"a": 1, "c": 2}, {"a": 1, "b": "x", "c": 3}, {"a": 1, "c": "x"}, {"x1": 1}, {"x1": "x"},
    {"1x": 1}, {"a": 1, "x1": 1}, {"a": 1, "x1": "x"}, {"xa": 1, "c": 2},
    {"a": 1, "b": "x", "c": "y", "d": 1}, {"ab": 1}, {"ab": "x"}, {"abc": 1}, 3, "a", null, [],
    {"a": "x", "b": "x"}, {"a": 1, "c": 2, "x1": 3}, {"c": null}, {"a": 1, "c": null}
]""")
)
SAMPLES = {
    "additionalProperties": S,
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {"required": ["b"]}},
    "maxProperties": 1,
    "minProperties": 2,
    "patternProperties": {"^x[0-9]+$": S},
    "properties": AB,
    "propertyNames": {"pattern": "^[ab]$"},
    "required": ["a"],
    "unevaluatedProperties": False,
}
OLD = "http://json-schema.org/draft-07/schema#"
FORMS = {"additionalProperties": ":schema", "propertyNames": ":pattern", "required": ":undeclared"}


NAMED = {"properties": {'a"b': I, "a\nb": I}}
ESCAPED = [
    judged(
        f"properties:escaped{mark}", {**typed, **NAMED, **more}, {'a"b': 1}, {'a"b': "x"}, {"a\nb": None}, {}
    )
    for mark, typed in (("", O), (":union", {"type": ["object", "null"]}), (":untyped", {}))
    for more in ({}, {"additionalProperties": False})
]


NAMES = (
    *(
        {name: value}
        for value in (1, "x")
        for name in ('x"', "-x", "éx", "@a", "@@a", "xa", "xx", "x2", "x-a", "-")
    ),
    *({"cb": 1}, {"b": 1}, {"a@": 1}),
)


def pooled(shape, schema):
    return judged(shape, schema, *POOL)


def _single():
    for keyword, value in SAMPLES.items():
        shape = keyword + FORMS.get(keyword, "")
        yield pooled(shape, {**O, keyword: value})
        yield pooled(f"{shape}:untyped", {keyword: value})
        yield pooled(f"{shape}:union", {"type": ["object", "null"], keyword: value})
        yield judged(f"{keyword}:foreign", {"type": "integer", keyword: value}, 3, {"a": 1}, "a")
    for kind in ("object", ["object", "null"], None):
        mark = ":untyped" if kind is None else ":union" if kind != "object" else ""
        typed = {"type": kind} if kind else {}
        for flag in (True, False):
            schema = {**typed, "properties": AB, "additionalProperties": flag}
            yield pooled(f"additionalProperties:{str(flag).lower()}{mark}", schema)
        yield pooled(f"required{mark}", {**typed, "properties": AB, "required": ["a"]})
        yield pooled(f"required{mark}", {**typed, "properties": AB, "required": ["b"]})
        yield pooled(f"properties:false{mark}", {**typed, "properties": {"a": False, "b": S}})
        old = {"$schema": OLD, **typed, "properties": AB, "dependencies": {"a": ["b"]}}
        yield pooled(f"dependencies{mark}", old)
        for count in ("minProperties", "maxProperties"):
            bounds = {"properties": AB, "additionalProperties": False, count: 1}
            yield pooled(f"{count}:optional{mark}", {**typed, **bounds})
            yield pooled(f"{count}:optional{mark}", {**typed, "properties": AB, count: 2})
            yield pooled(f"{count}{mark}", {**typed, **bounds, "required": ["a", "b"]})


def _names():
    for form, pattern in (
        *(
            ("", "^x[0-9]+$"),
            (":search", "^x"),
            (":search", "b"),
            (":escapes", "^x.$"),
            (":unicode", r"^\Wx$"),
        ),
        *((":lookaround", "^(?!xa)x"), (":lookaround", "^(?!@@)[@a-z]+$"), (":lookaround", r"^(?=.*\d)x")),
        *((":lookaround", "x(?!1)"), (":lookaround", "(?<=a)b"), (":lookaround", "^(?!x-)")),
        *((":nested", "^(x|a[b-]*)*$"), (":nested", "^(ab|[^b]*b)*$")),
        *((":irregular", r"^(x)\1"), (":anchors", "x(^1|2)*$")),
    ):
        for kind, mark in (("object", ""), (["object", "null"], ":union"), (None, ":untyped")):
            typed = {"type": kind} if kind else {}
            schema = {**typed, "patternProperties": {pattern: I}, "additionalProperties": False}
            yield judged(f"patternProperties{form}{mark}", schema, *POOL, *NAMES)
            if form in ("", ":search"):
                opened = {**typed, "patternProperties": {pattern: I}}
                yield pooled(f"patternProperties:open{mark}", opened)
    for mark, typed in (("", O), (":union", {"type": ["object", "null"]}), (":untyped", {})):
        several = {**typed, "patternProperties": {"^a$": I, "^x1$": S}, "additionalProperties": False}
        yield pooled(f"patternProperties:apart{mark}", several)
        shared = {**typed, "patternProperties": {"^a": I, "b$": S}, "additionalProperties": False}
        yield pooled(f"patternProperties:several{mark}", shared)
        both = {**typed, "patternProperties": {"a*": I, "aaa*": {"type": "integer", "maximum": 20}}}
        yield judged(
            f"patternProperties:several{mark}", both, {"a": 21}, {"aaa": 18}, {"aaaa": 31}, {"aaa": "x"}
        )
        never = {**typed, "patternProperties": {"^x": False}}
        yield pooled(f"patternProperties:false{mark}", never)
        yield pooled(f"patternProperties:false{mark}", {**never, "additionalProperties": False})
        overlap = {"properties": {"ab": {}}, "patternProperties": {"^a": I}, "additionalProperties": False}
        yield pooled(f"patternProperties:overlap{mark}", {**typed, **overlap})
        for form, names in (
            ("enum", {"enum": ["a", "c"]}),
            ("maxLength", {"maxLength": 1}),
            ("const", {"const": "a"}),
        ):
            yield pooled(f"propertyNames:{form}{mark}", {**typed, "propertyNames": names})
        yield pooled(f"propertyNames:minLength{mark}", {**typed, "propertyNames": {"minLength": 2}})
        yield pooled(f"propertyNames:{mark}", {**typed, "propertyNames": {"type": "string"}})


def _closer():
    """Of each pair, what the pairs below leave to one of the two alone."""
    mixed = {"type": ["integer", "string"]}
    for first, second, schema in (
        (
            "additionalProperties",
            "patternProperties",
            {"additionalProperties": S, "patternProperties": {"^x[0-9]+$": I}},
        ),
        (
            "additionalProperties",
            "unevaluatedProperties",
            {"additionalProperties": S, "unevaluatedProperties": True},
        ),
        (
            "dependentRequired",
            "dependentSchemas",
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}},
        ),
        (
            "patternProperties",
            "propertyNames",
            {"patternProperties": {"^x[0-9]+$": I}, "propertyNames": {"pattern": "^x"}},
        ),
    ):
        yield pooled(f"{first}+{second}", {**O, **schema})
    for first in sorted(set(SAMPLES) - {"additionalProperties", "unevaluatedProperties"}):
        schema = {**O, "unevaluatedProperties": mixed, first: SAMPLES[first]}
        yield pooled(f"{first}+unevaluatedProperties", schema)


def _pairs():
    counts = {"maxProperties", "minProperties"}
    for first, second in combinations(sorted(SAMPLES), 2):
        if {"properties", "required"} & {first, second} and counts & {first, second}:
            whole = {**O, "properties": AB, "required": ["a", "b"], "additionalProperties": S}
            count = 2 if first == "maxProperties" else 3
            values = (
                {"a": 1, "b": "x"},
                {"a": 1, "b": "x", "c": "y"},
                {"a": 1},
                {"a": 1, "b": "x", "c": "y", "d": "z"},
                {"a": "x", "b": "x"},
                {"a": "x", "b": "x", "c": "y"},
            )
            yield judged(f"{first}+{second}", {**whole, first: count}, *values)
            continue
        base = {**O, "properties": AB} if "required" in (first, second) else O
        yield pooled(f"{first}+{second}", {**base, first: SAMPLES[first], second: SAMPLES[second]})
    for first in sorted(set(SAMPLES) - {"properties", "additionalProperties", *counts}):
        closed = {**O, "properties": AB, "additionalProperties": False, first: SAMPLES[first]}
        for other in ("additionalProperties", "properties"):
            yield pooled("+".join(sorted((first, other))), closed)
    for first in sorted(counts):
        closed = {**O, "properties": {"a": I}, "required": ["a"], first: 2}
        yield pooled(f"{first}+required", closed)
    both = {**O, "additionalProperties": I, "minProperties": 1, "maxProperties": 2}
    yield pooled("maxProperties+minProperties", both)
    for other in ("properties", "required", "additionalProperties", "minProperties"):
        value = {"additionalProperties": False, "properties": AB}.get(other, SAMPLES[other])
        old = {"$schema": OLD, **O, "properties": AB, "dependencies": {"a": ["b"]}, other: value}
        yield pooled("+".join(sorted(("dependencies", other))), old)


PROBES = [
    pooled("type", O),
    judged("properties", {**O, "properties": {"é": I, "": I}}, {"é": 1}, {"": 1}, {"": "x"}),
    judged(
        "properties", {**O, "properties": {"a": {**O, "properties": AB}}}, {"a": {"a": 1}}, {"a": {"a": "x"}}
    ),
    Probe(
        "properties",
        {**O, "properties": AB},
        ('{"a":1,"b":"x"}', '{ "a": 1 }'),
        ('{"a":1,"a":1}', '{"a":1,}'),
    ),
    *ESCAPED,
    *_single(),
    *_names(),
    *_closer(),
    *_pairs(),
]
