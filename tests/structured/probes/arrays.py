"""Items in all spellings, counts, uniqueness."""

from __future__ import annotations

from itertools import combinations

from tests.structured.probes.probe import judged

A = {"type": "array"}
I, S = {"type": "integer"}, {"type": "string"}  # noqa: E741
POOL = (
    *([], [1], ["a"], [None], [1, 2], [1, 1], [1, "a"], ["a", 1], ["a", "b"], [1, "a", 2], [1, "a", "b"]),
    *([1, 2, 3], [1, "a", None], [1, 2, 3, 4], ["a", "b", "a"], [1, 2, 1], [[1], [1]], [1, "a", 2, 3]),
    *([1, "a", 1], [1, "a", "a"], [1, "a", None, "b"], [1, 1, 2], [None, "a"], [1, None, 2]),
    *(3, "a", None, {}),
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


def _single():
    for keyword, value in SAMPLES.items():
        yield judged(keyword, {**A, keyword: value}, *POOL)
        yield judged(f"{keyword}:untyped", {keyword: value}, *POOL)
        yield judged(f"{keyword}:union", {"type": ["array", "null"], keyword: value}, *POOL)
        yield judged(f"{keyword}:foreign", {"type": "integer", keyword: value}, 3, [1], "a")
    yield judged("items", {**A, "items": I}, *POOL)
    yield judged("items", {**A, "items": {**A, "items": I}}, [], [[]], [[1]], [["a"]], [1])
    yield judged("items", {**A, "items": {}}, *POOL)
    yield judged("items", {**A, "items": True}, *POOL)
    yield judged("items:false", {**A, "items": False}, *POOL)
    yield judged("items:false:union", {"type": ["array", "null"], "items": False}, *POOL)
    yield judged("items:false:untyped", {"items": False}, *POOL)
    yield judged("uniqueItems:false", {**A, "uniqueItems": False}, *POOL)
    yield judged("prefixItems", {**A, "prefixItems": [I]}, *POOL)
    yield judged("maxItems", {**A, "maxItems": 0}, *POOL)
    yield judged("minItems", {**A, "minItems": 0}, *POOL)
    yield judged("contains", {**A, "contains": {"const": 2}}, *POOL)


def _old():
    tuple_ = {"$schema": OLD, **A, "items": [I, S]}
    yield judged("items:list", tuple_, *POOL)
    yield judged("items:list:untyped", {"$schema": OLD, "items": [I, S]}, *POOL)
    yield judged("items:list:union", {**tuple_, "type": ["array", "null"]}, *POOL)
    yield judged("additionalItems:false", {**tuple_, "additionalItems": False}, *POOL)
    yield judged("additionalItems", {**tuple_, "additionalItems": I}, *POOL)
    yield judged("additionalItems:alone", {"$schema": OLD, **A, "items": I, "additionalItems": False}, *POOL)
    yield judged("additionalItems+items", {**tuple_, "additionalItems": False}, *POOL)
    yield judged("additionalItems+minItems", {**tuple_, "additionalItems": False, "minItems": 2}, *POOL)
    yield judged("additionalItems+maxItems", {**tuple_, "additionalItems": I, "maxItems": 3}, *POOL)


def _pairs():
    for first, second in combinations(sorted(SAMPLES), 2):
        schema = {**A, first: SAMPLES[first], second: SAMPLES[second]}
        yield judged(f"{first}+{second}", schema, *POOL)
        if {"minContains", "maxContains"} & {first, second} and "contains" not in (first, second):
            counts = (
                {"minContains": 2, "maxContains": 2}
                if (first, second) == ("maxContains", "minContains")
                else {}
            )
            yield judged(f"{first}+{second}", {**schema, "contains": S, **counts}, *POOL)
            yield judged(f"{first}+{second}", {**schema, "contains": S, "maxItems": 9}, *POOL)
        if second == "unevaluatedItems" or first == "unevaluatedItems":
            rest = {"type": ["integer", "string"]} if "items" not in (first, second) else True
            yield judged(f"{first}+{second}", {**schema, "unevaluatedItems": rest}, *POOL)
    yield judged("items+prefixItems", {**A, "prefixItems": [I, S], "items": False}, *POOL)
    yield judged("items+prefixItems", {**A, "prefixItems": [I, S], "items": I}, *POOL)
    yield judged("maxItems+minItems", {**A, "minItems": 1, "maxItems": 3}, *POOL)
    yield judged("maxItems+prefixItems", {**A, "prefixItems": [I, S], "maxItems": 3}, *POOL)
    yield judged("minItems+prefixItems", {**A, "prefixItems": [I, S], "minItems": 3}, *POOL)
    yield judged("items+minItems", {**A, "items": I, "minItems": 2}, *POOL)
    yield judged("items+maxItems", {**A, "items": I, "maxItems": 2}, *POOL)


PROBES = [judged("type", A, *POOL), *_single(), *_old(), *_pairs()]
