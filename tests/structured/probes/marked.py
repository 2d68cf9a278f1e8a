"""Objects and arrays with the mark `x-lark`, which are written in Lark for llguidance."""

from __future__ import annotations

from itertools import combinations

from tests.structured.probes.objects import AB, POOL, I, S
from tests.structured.probes.probe import Probe, judged

O = {"type": "object", "x-lark": "any-order"}  # noqa: E741
A = {"type": "array", "x-lark": "counted"}
TURNED = (
    *(dict(reversed(value.items())) for value in POOL if isinstance(value, dict)),
    *({"x1": "x", "a": 1}, {"c": 2, "a": 1, "b": "x"}, {"b": "x", "c": "y", "a": 1}, {"c": 1, "d": 2}),
    *({"x1": "x", "x2": "y", "a": 1}, {"b": "x", "c": "z"}, {"x1": "x", "x2": "y", "x3": "z"}),
)
COUNTS = ("maxProperties", "minProperties")
SAMPLES = {
    "additionalProperties": S,
    "maxProperties": 2,
    "minProperties": 2,
    "patternProperties": {"^x[0-9]+$": S},
    "properties": AB,
    "required": ["b"],
}
ITEMS = (
    *([], ["a"], ["a", "b"], ["b", "a"], ["a", "a"], ["a", 1], [1, "a"], [1, 1], [1], ["c", "a", 1, "b"]),
    *([1, "a", 1], ["a", 1, "a"], [1, 2, 3, "a"], ["a", "b", "c"], ["b", "c", "b"], ["d"], [None, "a"]),
    *(3, {}, [["a"]], ["a", "b", 1, 2], ["b", 2, "a", "c"], [1, 2]),
)
LISTED = {"enum": ["a", "b", "c", 1]}


def _objects(mark):
    values = POOL if mark == "in-order" else (*POOL, *TURNED)
    samples = {key: value for key, value in SAMPLES.items() if mark == "any-order" or key not in COUNTS}
    plain = {"type": "object", "x-lark": mark}
    for keyword, value in samples.items():
        base = {**plain, "properties": AB} if keyword == "required" else plain
        closed = {"additionalProperties": False} if keyword == "patternProperties" else {}
        yield judged(f"{keyword}:{mark}", {**base, keyword: value, **closed}, *values)
    for first, second in combinations(samples, 2):
        shape = f"{first}+{second}:{mark}"
        base = {**plain, "properties": AB} if "required" in (first, second) else plain
        for rest in (S, True, False):
            schema = {**base, first: samples[first], second: samples[second], "additionalProperties": rest}
            if rest is False or "patternProperties" not in schema:
                yield judged(shape, schema, *values)
    named = {**plain, "properties": {'a"\n\x01é/': I, "\\": S, "no": False}}
    yield judged(
        f"properties:{mark}",
        named,
        *({name: value} for name in named["properties"] for value in (1, "x")),
        {'a"\n\x01é/': 1, "\\": "x", "other": None},
    )
    twice = ('{"b":"x","a":1,"b":"y"}', '{"a":1,"\\u0061":2}', '{"b":"x","\\u0061":"x"}', '{"b":"x",}')
    yield Probe(f"properties:{mark}", {**plain, "properties": AB}, ('{ "a": 1, "b": "x" }',), twice)
    both = {"patternProperties": SAMPLES["patternProperties"], "additionalProperties": False}
    yield judged(
        f"patternProperties+properties:{mark}", {**plain, "properties": {"a": I}, **both}, *values, {"a": "y"}
    )


def _counts():
    whole = {**O, "properties": AB, "required": ["b"], "additionalProperties": S, "minProperties": 2}
    for most in (2, 3):
        schema = {**whole, "maxProperties": most}
        yield judged("maxProperties+minProperties:any-order", schema, *POOL, *TURNED)


def _arrays():
    wanted = {**A, "contains": S}
    yield judged("contains:counted", wanted, *ITEMS)
    yield judged("items:counted", {**wanted, "items": {"type": ["string", "integer"]}}, *ITEMS)
    yield judged("uniqueItems:counted", {**A, "uniqueItems": True, "items": LISTED}, *ITEMS)
    for bounds in (
        {"minItems": 2},
        {"maxItems": 2},
        {"minItems": 2, "maxItems": 3},
        {"minContains": 2},
        {"minContains": 2, "maxItems": 3},
        {"minContains": 2, "minItems": 3},
        {"items": LISTED, "contains": {"enum": ["a", "c"]}},
    ):
        schema = {**wanted, **bounds}
        for first, second in combinations(sorted(schema.keys() - {"type", "x-lark"}), 2):
            yield judged(f"{first}+{second}:counted", schema, *ITEMS)
        for keyword in bounds:
            yield judged(f"{keyword}:counted", schema, *ITEMS)
    for bounds in ({"minItems": 2}, {"maxItems": 2}, {"minItems": 1, "maxItems": 2}, {}):
        schema = {**A, "uniqueItems": True, "items": LISTED, **bounds}
        for first, second in combinations(sorted(schema.keys() - {"type", "x-lark"}), 2):
            yield judged(f"{first}+{second}:counted", schema, *ITEMS)
    both = {**wanted, "items": {"enum": ["a", 1]}, "contains": {"const": "a"}, "uniqueItems": True}
    yield judged("contains+uniqueItems:counted", both, *ITEMS)


PROBES = [*_objects("any-order"), *_objects("in-order"), *_counts(), *_arrays()]
