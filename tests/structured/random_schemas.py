"""Schemas drawn without regard to sense, and values that lie on their edges."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["VALUES", "drawn", "is_valid"]

VALUES: list[Any] = json.loads(r"""[
    null, true, false, 0, 1, 2, 3, 4, 5, 6, 7, -1, 10, 1.5, 0.5, "", "a", "b", "ab", "abc", "foo", "xa",
    "a\"", "é", [], [1], ["a"], [1, "a"], [1, 1], [1, 2], ["a", "a"], [null], [1, "a", true], [[1]], {},
    {"a": 1}, {"a": "x"}, {"b": 1}, {"b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"a": "x", "b": 1},
    {"c": 1}, {"a": 1, "c": 1}, {"a": 1, "b": "x", "c": null}, {"xa": 1}, {"a": 1, "xa": "b"}, {"a": null},
    {"a": [1]}, {"a": {"a": 1}}, {"b": true, "c": "x"}, {"a": 2}, {"a": 2, "b": "x"},
    {"a": {"a": {"a": 1}}}, {"c": "foo"}
]""")
LEAVES: list[Any] = json.loads(r"""[
    {"type": "integer"}, {"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {},
    true, {"const": 1}, {"const": "a"}, {"const": {"a": 1}}, {"enum": [1, "a", null]},
    {"enum": [true, [1], 0.5]}, {"minimum": 2}, {"maximum": 3},
    {"type": "integer", "minimum": 0, "maximum": 3}, {"exclusiveMinimum": 1}, {"multipleOf": 2},
    {"multipleOf": 0.5}, {"minLength": 2}, {"maxLength": 1}, {"type": ["string", "null"]},
    {"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b"},
    {"type": "string", "pattern": "^[ab]+$"}, {"type": "string", "pattern": "^(?!a)"},
    {"type": "string", "pattern": "^(?=.*b)a"}, {"type": "string", "pattern": "^[^a]*$"}
]""")
Rule = Callable[[random.Random, Callable[[], Any]], dict[str, Any]]


def _object(rng: random.Random, below: Callable[[], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "properties": {name: below() for name in sorted(rng.sample("abc", rng.choice([1, 2])))}
    }
    if rng.random() < 0.6:
        found["required"] = sorted(rng.sample("abc", rng.choice([1, 2])))
    if rng.random() < 0.4:
        found["additionalProperties"] = rng.choice([False, True, rng.choice(LEAVES)])
    return {**found, "type": "object"} if rng.random() < 0.7 else found


def _array(rng: random.Random, below: Callable[[], Any]) -> dict[str, Any]:
    whole = {
        "items": rng.choice([False, below()]),
        "prefixItems": [below()],
        "minItems": 1,
        "maxItems": rng.choice([1, 2]),
    }
    found = {key: value for key, value in whole.items() if rng.random() < 0.5}
    return {**found, "type": "array"} if rng.random() < 0.7 else found


def _condition(rng: random.Random, below: Callable[[], Any]) -> dict[str, Any]:
    return {"if": below(), **{key: below() for key in ("then", "else") if rng.random() < 0.7}}


RULES: list[Rule] = [
    *(_object, _object, _object, _array, _array, _condition),
    *(
        lambda rng, below, key=key: {key: [below() for _ in range(rng.choice([1, 2, 3]))]}
        for key in ("allOf", "anyOf", "oneOf")
    ),
    lambda rng, below: {
        "type": rng.choice(["integer", "object", ["integer", "string"], ["array", "object", "null"]])
    },
    lambda rng, below: {"not": below()},
    lambda rng, below: {"dependentRequired": {"a": ["b"]}},
    lambda rng, below: {"dependentSchemas": {"a": below()}},
    lambda rng, below: {"$ref": rng.choice(["#/$defs/x", "#/$defs/y", "#/$defs/z"])},
    lambda rng, below: {"enum": [1, 3, "a", None, [1], {"a": 1}, {"a": 1, "b": "x"}]},
    lambda rng, below: {"minimum": 1, "multipleOf": 2},
    lambda rng, below: {"minLength": 1, "pattern": "^[ab]"},
    lambda rng, below: {
        rng.choice(["unevaluatedProperties", "unevaluatedItems"]): rng.choice([False, rng.choice(LEAVES)])
    },
    lambda rng, below: {
        "propertyNames": rng.choice([{"pattern": "^[ab]$"}, {"enum": ["a", "c"]}, {"not": {"const": "b"}}])
    },
    lambda rng, below: {"patternProperties": {rng.choice(["^x", "^a", "^[bc]$"]): rng.choice(LEAVES)}},
    lambda rng, below: {rng.choice(["minProperties", "maxProperties"]): rng.choice([1, 2])},
    lambda rng, below: {"contains": rng.choice(LEAVES)},
    lambda rng, below: {"uniqueItems": True},
]


def _schema(rng: random.Random, depth: int = 0) -> Any:
    if depth > 2 or rng.random() < 0.3:
        return rng.choice(LEAVES)
    found: dict[str, Any] = {}
    for _ in range(rng.choice([1, 1, 2, 2, 3])):
        found |= rng.choice(RULES)(rng, lambda: _schema(rng, depth + 1))
    return found


def drawn(rng: random.Random) -> dict[str, Any]:
    """A schema with up to three keywords or groups of them on each of three levels."""
    found = _schema(rng)
    tree = {"type": "object", "properties": {"a": {"$ref": "#/$defs/y"}, "b": {"type": "string"}}}
    either = {
        "anyOf": [
            {"type": "integer"},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"]},
        ]
    }
    return {
        **(found if isinstance(found, dict) else {}),
        "$defs": {"x": _schema(rng, 2), "y": tree, "z": either},
    }


def is_valid(schema: Any, value: Any) -> bool:
    try:
        return Draft202012Validator(schema).is_valid(value)
    except RecursionError:  # a reference in a circle, which is refused long before
        return False
