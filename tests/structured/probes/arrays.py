"""Items in all spellings, counts, uniqueness."""

from __future__ import annotations

import json
from itertools import combinations

from tests.structured.probes.probe import judged

A = {"type": "array"}
I, S = {"type": "integer"}, {"type": "string"}  # noqa: E741
POOL = tuple(
    json.loads("""[
    [], [1], ["a"], [null], [1, 2], [1, 1], [1, "a"], ["a", 1], ["a", "b"], [1, "a", 2], [1, "a", "b"],
    [1, 2, 3], [1, "a", null], [1, 2, 3, 4], ["a", "b", "a"], [1, 2, 1], [[1], [1]], [1, "a", 2, 3],
    [1, "a", 1], [1, "a", "a"], [1, "a", null, "b"], [1, 1, 2], [null, "a"], [1, null, 2], 3, "a", null, {}
]""")
)
SAMPLES = {
    "contains": S,
    "items": {"type": ["integer", "string"]},
    "maxContains": 1,
    "maxItems": 2,
    "minContains": 2,
    "minItems": 2,
    "prefixItems": [I, S],
    "unevaluatedItems": False,
    "uniqueItems": True,
}
OLD = "http://json-schema.org/draft-07/schema#"


def pooled(shape, schema):
    return judged(shape, schema, *POOL)


def _single():
    for keyword, value in SAMPLES.items():
        yield pooled(keyword, {**A, keyword: value})
        yield pooled(f"{keyword}:untyped", {keyword: value})
        yield pooled(f"{keyword}:union", {"type": ["array", "null"], keyword: value})
        yield judged(f"{keyword}:foreign", {"type": "integer", keyword: value}, 3, [1], "a")
    yield pooled("items", {**A, "items": I})
    yield judged("items", {**A, "items": {**A, "items": I}}, [], [[]], [[1]], [["a"]], [1])
    yield pooled("items", {**A, "items": {}})
    yield pooled("items", {**A, "items": True})
    yield pooled("items:false", {**A, "items": False})
    yield pooled("items:false:union", {"type": ["array", "null"], "items": False})
    yield pooled("items:false:untyped", {"items": False})
    yield pooled("uniqueItems:false", {**A, "uniqueItems": False})
    yield pooled("prefixItems", {**A, "prefixItems": [I]})
    yield pooled("maxItems", {**A, "maxItems": 0})
    yield pooled("minItems", {**A, "minItems": 0})
    yield pooled("contains", {**A, "contains": {"const": 2}})


def _old():
    tuple_ = {"$schema": OLD, **A, "items": [I, S]}
    yield pooled("items:list", tuple_)
    yield pooled("items:list:untyped", {"$schema": OLD, "items": [I, S]})
    yield pooled("items:list:union", {**tuple_, "type": ["array", "null"]})
    yield pooled("additionalItems:false", {**tuple_, "additionalItems": False})
    yield pooled("additionalItems", {**tuple_, "additionalItems": I})
    yield pooled("additionalItems:alone", {"$schema": OLD, **A, "items": I, "additionalItems": False})
    yield pooled("additionalItems+items", {**tuple_, "additionalItems": False})
    yield pooled("additionalItems+minItems", {**tuple_, "additionalItems": False, "minItems": 2})
    yield pooled("additionalItems+maxItems", {**tuple_, "additionalItems": I, "maxItems": 3})


def _pairs():
    for first, second in combinations(sorted(SAMPLES), 2):
        schema = {**A, first: SAMPLES[first], second: SAMPLES[second]}
        yield pooled(f"{first}+{second}", schema)
        if {"minContains", "maxContains"} & {first, second} and "contains" not in (first, second):
            counts = (
                {"minContains": 2, "maxContains": 2}
                if (first, second) == ("maxContains", "minContains")
                else {}
            )
            yield pooled(f"{first}+{second}", {**schema, "contains": S, **counts})
            yield pooled(f"{first}+{second}", {**schema, "contains": S, "maxItems": 9})
        if second == "unevaluatedItems" or first == "unevaluatedItems":
            rest = {"type": ["integer", "string"]} if "items" not in (first, second) else True
            yield pooled(f"{first}+{second}", {**schema, "unevaluatedItems": rest})
    yield pooled("items+prefixItems", {**A, "prefixItems": [I, S], "items": False})
    yield pooled("items+prefixItems", {**A, "prefixItems": [I, S], "items": I})
    yield pooled("maxItems+minItems", {**A, "minItems": 1, "maxItems": 3})
    yield pooled("maxItems+prefixItems", {**A, "prefixItems": [I, S], "maxItems": 3})
    yield pooled("minItems+prefixItems", {**A, "prefixItems": [I, S], "minItems": 3})
    yield pooled("items+minItems", {**A, "items": I, "minItems": 2})
    yield pooled("items+maxItems", {**A, "items": I, "maxItems": 2})


PROBES = [pooled("type", A), *_single(), *_old(), *_pairs()]
