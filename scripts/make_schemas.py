"""Write tests/data/schemas.jsonl: schemas of every kind, each with instances that jsonschema has sorted.

    python scripts/make_schemas.py

Most are drawn from templates with a fixed seed; those in scripts/schemas_by_hand.py are written out.
Each line: {"name", "schema", "valid": [...], "invalid": [...]}.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.schemas_by_hand import BY_HAND  # noqa: E402

TARGET = ROOT / "tests" / "data" / "schemas.jsonl"
LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
COUNT = 400

Made = tuple[Any, list[Any], list[Any]]  # a schema, good instances, bad ones
NAMES = (
    "id name title email age price count tags status kind owner url path host port created updated size color"
    " width height address city zip country items notes enabled version license author score level parent"
).split()


# Fields: what stands in real schemas, as often as it does.
def _text(rng: random.Random) -> Made:
    return {"type": "string"}, ["abc", "", 'say "hi"\n', "é😀"], [3, None, ["a"]]


def _described(rng: random.Random) -> Made:
    schema = {"type": "string", "title": "A text", "description": "Any text.", "default": "x", "examples": ["y"]}
    return schema, ["x", "longer text"], [1, {}]


def _bounded_text(rng: random.Random) -> Made:
    low, high = rng.choice([(1, 5), (0, 3), (2, 80), (3, 3)])
    schema = {"type": "string", **({"minLength": low} if low else {}), **({"maxLength": high} if rng.random() < 0.8 else {})}
    return schema, ["a" * max(low, 1), "ab\n"[: max(low, 3)], "é" * low or "x"], ["a" * (high + 1), "a" * (low - 1), 3]


PATTERNS = [
    ("^[a-z]+$", ["abc", "z"], ["", "aB", "a1"]),
    ("^[A-Z]{2,3}-[0-9]{4}$", ["AB-1234", "ABC-0000"], ["AB1234", "A-1234", "AB-12345"]),
    (r"^\d{5}(-\d{4})?$", ["12345", "12345-6789"], ["1234", "12345-"]),
    (r"^\+?[0-9 ]{6,14}$", ["+49 123456", "0123456"], ["12", "abc"]),
    ("^#[0-9a-fA-F]{6}$", ["#a1B2c3"], ["a1b2c3", "#12345"]),
    (r"^v\d+\.\d+\.\d+", ["v1.2.3", "v0.0.1-rc1"], ["1.2.3", "v1.2"]),
    ("foo", ["foo", "a foo b"], ["fo", "bar"]),
    (r"\.json$", ["a.json", "dir/b.json"], ["a.yaml", "json"]),
    (r"^[^/]+$", ["abc", "a b"], ["a/b", ""]),
    (r"^\S+$", ["abc", "a-b"], ["a b", ""]),
    (r"^(\w+)(,\w+)*$", ["a,b,c", "a"], ["a,", ",a"]),
    (r"^(?!\.)[a-z.]+$", ["a.b", "abc"], [".a", "A"]),
    (r"^(?=.*[0-9])[a-z0-9]+$", ["a1", "1"], ["abc", "A1"]),
    (r"^\$\{[A-Z_]+\}$", ["${HOME}"], ["$HOME", "${home}"]),
    (r"^(true|false|auto)$", ["true", "auto"], ["yes", "truex"]),
    (r'^"[^"]*"$', ['"a"', '""'], ["a", '"a']),
]


def _patterned(rng: random.Random) -> Made:
    pattern, good, bad = rng.choice(PATTERNS)
    return {"type": "string", "pattern": pattern}, list(good), [*bad, 3]


def _patterned_bounded(rng: random.Random) -> Made:
    pattern, good, bad = rng.choice(PATTERNS[:5])
    schema = {"type": "string", "pattern": pattern, "maxLength": max(map(len, good))}
    return schema, list(good), [*bad, "a" * 100]


FORMATS = [
    ("date", ["2024-02-29", "1999-12-31"], ["2024-13-01", "yesterday"]),
    ("date-time", ["2024-02-29T08:30:06Z", "1999-12-31T23:59:59.5-08:00"], ["2024-02-29"]),
    ("email", ["a@b.de", "first.last@example.com"], ["nobody", "@b.de"]),
    ("uri", ["https://example.com/a?b=c#d", "urn:isbn:0451450523"], ["no uri", "/a"]),
    ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ("ipv4", ["1.2.3.4", "255.255.255.255"], ["256.1.1.1", "1.2.3"]),
    ("ipv6", ["::1", "2001:db8::8a2e:370:7334"], ["12345::", "x"]),
    ("hostname", ["example.com", "a-b.c"], ["-a", "a_b"]),
    ("time", ["08:30:06Z"], ["25:00:00Z", "8h"]),
    ("duration", ["P1D", "PT5M"], ["1D", "P"]),
    ("json-pointer", ["/a/0", ""], ["a", "/~2"]),
    ("uri-reference", ["/a/b", "c?d"], ["a b", "\\a"]),
]


def _formatted(rng: random.Random) -> Made:
    name, good, bad = FORMATS[min(rng.randrange(16), 11) if rng.random() < 0.4 else rng.randrange(5)]
    return {"type": "string", "format": name}, list(good), [*bad, 3]


def _whole(rng: random.Random) -> Made:
    schema: dict[str, Any] = {"type": "integer"}
    if rng.random() < 0.6:
        low, high = rng.choice([(0, 100), (1, 65535), (-5, 5), (0, 1), (1900, 2100)])
        return {**schema, "minimum": low, "maximum": high}, [low, high, (low + high) // 2], [low - 1, high + 1, "1", 0.5]
    if rng.random() < 0.4:
        return {**schema, "exclusiveMinimum": 0}, [1, 12345], [0, -1, "a"]
    return schema, [0, -7, 12345], ["1", 1.5, None]


def _number(rng: random.Random) -> Made:
    low, high = rng.choice([(0, 1), (-90, 90), (0, 9.99), (-1.5, 2.25)])
    if rng.random() < 0.5:
        return {"type": "number", "minimum": low, "maximum": high}, [low, high, 0.5], [low - 0.5, high + 0.01, "0"]
    return {"type": "number"}, [0, 1.5, -2e-3], ["0", None, True]


def _multiple(rng: random.Random) -> Made:
    if rng.random() < 0.5:
        return {"type": "number", "multipleOf": 0.01}, [1.25, 3, 0.1], [0.125, 1.001]
    step = rng.choice([2, 5, 10, 15])
    schema = {"type": "integer", "multipleOf": step, **({"minimum": 0, "maximum": step * 20} if rng.random() < 0.5 else {})}
    return schema, [0, step, step * 3], [1, step + 1, step * 2 - 1]


def _flag(rng: random.Random) -> Made:
    return {"type": "boolean"}, [True, False], ["true", 0, None]


def _choice(rng: random.Random) -> Made:
    values = rng.choice([["red", "green", "blue"], ["a"], ["low", "mid", "high", None], [1, 2, 3], ['in"ch', "cm", "ä"]])
    return {"enum": values}, list(values), ["other", 99, [], "re"]


def _typed_choice(rng: random.Random) -> Made:
    return {"type": "string", "enum": ["open", "closed", "in progress"]}, ["open", "in progress"], ["shut", None, ""]


def _constant(rng: random.Random) -> Made:
    value = rng.choice(["v1", 1, True, None, "x\ty"])
    return {"const": value}, [value], ["v2", 2, False]


def _nullable(rng: random.Random) -> Made:
    below, good, bad = rng.choice([_text, _whole, _bounded_text])(rng)
    form = rng.random()
    if form < 0.5 and isinstance(below.get("type"), str):
        return {**below, "type": [below["type"], "null"]}, [*good, None], [one for one in bad if one is not None] + [[1]]
    return {rng.choice(["anyOf", "oneOf"]): [below, {"type": "null"}]}, [*good, None], [[1], {}]


def _union(rng: random.Random) -> Made:
    a, b = rng.sample([_text, _whole, _flag, _typed_choice], 2)
    (first, good, _), (second, more, _) = a(rng), b(rng)
    return {"anyOf": [first, second]}, [good[0], more[0]], [[], {"x": 1}]


def _list(rng: random.Random) -> Made:
    below, good, bad = rng.choice(FIELDS[:12])(rng)
    schema: dict[str, Any] = {"type": "array", "items": below}
    found = [[good[0]], [*good[:2]], good[:1] * 3]
    if rng.random() < 0.5:
        schema |= {"minItems": 1, "maxItems": 3}
        return schema, found, [[], good[:1] * 4, [bad[0]]]
    return schema, [*found, []], [[bad[0]], [good[0], bad[-1]], "x", {}]


def _tuple(rng: random.Random) -> Made:
    schema = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2}
    if rng.random() < 0.6:
        schema["items"] = False
        return schema, [["a", 1], ["", -3]], [["a"], [1, "a"], ["a", 1, 2]]
    return schema, [["a", 1], ["a", 1, None]], [["a"], [1, "a"]]


def _record(rng: random.Random) -> Made:
    return _object(rng, rng.randint(1, 3), rng.sample(FIELDS[:14], 3))


def _map(rng: random.Random) -> Made:
    below, good, bad = rng.choice(FIELDS[:8])(rng)
    schema = {"type": "object", "additionalProperties": below}
    return schema, [{}, {"k": good[0]}, {"a b": good[0], "c": good[-1]}], [{"k": bad[0]}, 3]


def _free(rng: random.Random) -> Made:
    return {"type": "object"}, [{}, {"any": [1, None, {"x": "y"}]}], [3, []]


FIELDS: list[Callable[[random.Random], Made]] = [
    *(_text, _text, _described, _whole, _whole, _number, _flag, _flag, _typed_choice, _choice, _formatted, _bounded_text),
    *(_patterned, _constant, _nullable, _list, _list, _record, _union, _map, _formatted, _text, _bounded_text),
    *(_tuple, _free, _multiple, _patterned_bounded),
]


def _object(rng: random.Random, count: int, kinds: list[Callable[[random.Random], Made]]) -> Made:
    names = rng.sample(NAMES, count)
    made = {name: rng.choice(kinds)(rng) for name in names}
    required = [name for name in names if rng.random() < 0.6] or names[:1]
    schema: dict[str, Any] = {"type": "object", "properties": {name: one[0] for name, one in made.items()}}
    if rng.random() < 0.9:
        schema["required"] = required
    if (closed := rng.random() < 0.5):
        schema["additionalProperties"] = False
    full = {name: one[1][0] for name, one in made.items()}
    least = {name: made[name][1][-1] for name in names if name in required}
    good = [full, least, {name: rng.choice(one[1]) for name, one in made.items()}]
    bad: list[Any] = [{**full, name: rng.choice(one[2])} for name, one in made.items()]
    bad += [{key: value for key, value in full.items() if key != name} for name in required]
    bad += [{**full, "surplus": 1}] if closed else []
    return schema, good, [*bad, [], "x"]


# What a schema has now and then, on top of an object with the properties a (integer) and b (string).
AB = {"a": {"type": "integer"}, "b": {"type": "string"}}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "tricks": {"type": "array"}}, "required": ["kind"]}
INT, STR = {"type": "integer"}, {"type": "string"}
SPECIAL: list[Made] = [
    ({"oneOf": [INT, STR]}, [1, "a"], [None, 1.5]),
    ({"oneOf": [CAT, DOG]}, [{"kind": "cat", "lives": 9}, {"kind": "dog"}], [{"kind": "cow"}, {"lives": 1}]),
    ({"oneOf": [{"const": "a"}, {"const": "b", "title": "B"}]}, ["a", "b"], ["c", 1]),
    ({"oneOf": [{"minimum": 10, "type": "integer"}, {"maximum": 0, "type": "integer"}]}, [10, -3], [5, "a"]),
    ({"oneOf": [{**INT, "minimum": 3}, {**INT, "maximum": 5}]}, [1, 9], [4, "a"]),
    ({"anyOf": [CAT, DOG, {"type": "null"}]}, [{"kind": "cat"}, None], [{"kind": "cow"}, 1]),
    (
        {"type": "object", "properties": AB, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}],
        [{}, {"a": "x"}],
    ),
    (
        {"type": "object", "properties": AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": "x"}],
        [{}, {"a": 1, "b": "x"}],
    ),
    (
        {"allOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, {"properties": {"b": STR}, "required": ["b"]}]},
        [{"a": 1, "b": "x"}, {"a": 2, "b": ""}],
        [{"a": 1}, {"a": 1, "b": 2}],
    ),
    ({"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 4}]}, ["ab", "abcd"], ["a", "abcde"]),
    ({"type": "integer", "allOf": [{"minimum": 3}, {"multipleOf": 2}]}, [4, 6], [2, 5]),
    ({"type": "string", "not": {"enum": ["root", "admin"]}}, ["ann", "roo", "rooty"], ["root", "admin"]),
    ({"type": ["integer", "string"], "not": {"type": "string"}}, [1, 2], ["a", None]),
    ({"type": "object", "properties": AB, "not": {"required": ["a", "b"]}}, [{"a": 1}, {}], [{"a": 1, "b": "x"}, 3]),
    ({"type": "integer", "not": {"const": 13}}, [12, 14, 0], [13, "a"]),
    (
        {"type": "object", "properties": AB, "if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}},
        [{"a": 1, "b": "x"}, {"a": 2}, {}],
        [{"a": 1}, {"a": "x"}],
    ),
    (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["x", "y"]}, "value": {}},
            "required": ["kind", "value"],
            "if": {"properties": {"kind": {"const": "x"}}},
            "then": {"properties": {"value": INT}},
            "else": {"properties": {"value": STR}},
        },
        [{"kind": "x", "value": 1}, {"kind": "y", "value": "s"}],
        [{"kind": "x", "value": "s"}, {"kind": "y", "value": 1}],
    ),
    ({"type": "object", "properties": AB, "dependentRequired": {"a": ["b"]}}, [{"b": "x"}, {"a": 1, "b": "x"}], [{"a": 1}, 3]),
    (
        {"type": "object", "properties": AB, "dependentSchemas": {"a": {"properties": {"b": {"minLength": 2}}}}},
        [{"b": "x"}, {"a": 1, "b": "xy"}],
        [{"a": 1, "b": "x"}, 3],
    ),
    ({"type": "array", "items": INT, "uniqueItems": True}, [[1, 2], []], [[1, 1], ["a"]]),
    ({"type": "array", "items": {"enum": ["r", "w", "x"]}, "uniqueItems": True}, [["r", "x"], []], [["r", "r"], ["q"]]),
    ({"type": "array", "items": STR, "uniqueItems": True, "maxItems": 4}, [["a", "b"], ["a"]], [["a", "a"], [1]]),
    ({"type": "array", "contains": {"const": "admin"}}, [["admin"], ["a", "admin"]], [["a"], []]),
    ({"type": "array", "items": STR, "contains": {"pattern": "^x"}, "maxItems": 3}, [["xa"], ["a", "x"]], [["a"], []]),
    (
        {"type": "object", "patternProperties": {"^x-": STR}, "properties": {"a": INT}, "additionalProperties": False},
        [{"a": 1, "x-b": "c"}, {}],
        [{"x-b": 1}, {"y": "c"}],
    ),
    ({"type": "object", "patternProperties": {"^[a-z]+$": INT}, "additionalProperties": False}, [{"ab": 1}, {}], [{"A": 1}, {"a": "x"}]),
    ({"type": "object", "propertyNames": {"pattern": "^[a-z_]+$"}, "additionalProperties": INT}, [{"a_b": 1}, {}], [{"A": 1}, {"a": "x"}]),
    ({"type": "object", "propertyNames": {"enum": ["en", "de"]}, "additionalProperties": STR}, [{"en": "x"}, {}], [{"fr": "x"}, {"en": 1}]),
    ({"type": "object", "properties": AB, "additionalProperties": False, "minProperties": 1}, [{"a": 1}, {"b": "x"}], [{}, {"c": 1}]),
    ({"type": "object", "additionalProperties": INT, "maxProperties": 2}, [{}, {"x": 1, "y": 2}], [{"x": 1, "y": 2, "z": 3}, {"x": "y"}]),
    ({"type": "object", "properties": AB, "maxProperties": 1}, [{"a": 1}, {"b": "x"}], [{"a": 1, "b": "x"}, 3]),
    ({"type": "object", "properties": AB, "unevaluatedProperties": False}, [{"a": 1}, {}], [{"c": 1}, {"a": "x"}]),
    (
        {"allOf": [{"properties": {"a": INT}}], "type": "object", "properties": {"b": STR}, "unevaluatedProperties": False},
        [{"a": 1, "b": "x"}, {}],
        [{"c": 1}, {"b": 2}],
    ),
    ({"minimum": 3, "maximum": 7}, [3, "a", None], [2, 8]),
    ({"properties": {"a": INT}, "required": ["a"]}, [{"a": 1}, 3], [{}, {"a": "x"}]),
    ({"type": "object", "required": ["a", "b"]}, [{"a": 1, "b": None}, {"a": [], "b": {}}], [{"a": 1}, {}]),
    ({"$ref": "#/$defs/port", "$defs": {"port": {**INT, "minimum": 1, "maximum": 65535}}}, [1, 65535], [0, "80"]),
    ({"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {**INT, "minimum": 1}}}, [1, 5], [0, 6]),
    ({"$ref": "#word", "$defs": {"w": {"$anchor": "word", **STR, "pattern": "^[a-z]+$"}}}, ["a", "bc"], ["", 1]),
    ({"const": {"a": [1, {"b": None}]}}, [{"a": [1, {"b": None}]}], [{"a": [1]}, 1]),
    ({"enum": [[1, 2], {"x": 1}, "s"]}, [[1, 2], {"x": 1}, "s"], [[2, 1], "t"]),
]
OLD_7 = "http://json-schema.org/draft-07/schema#"
OLD_4 = "http://json-schema.org/draft-04/schema#"
OLD: list[Made] = [
    ({"$schema": OLD_7, "type": "array", "items": [INT, STR], "additionalItems": False}, [[1, "a"], []], [["a"], [1, "a", 2]]),
    ({"$schema": OLD_7, "type": "object", "properties": AB, "dependencies": {"a": ["b"]}}, [{"b": "x"}, {}], [{"a": 1}, 3]),
    ({"$schema": OLD_4, "type": "number", "minimum": 0, "exclusiveMinimum": True}, [1, 0.5], [0, -1]),
    ({"$schema": OLD_7, "definitions": {"i": INT}, "$ref": "#/definitions/i"}, [1, 2], ["a", None]),
    ({"$schema": OLD_7, "definitions": {"i": INT}, "properties": {"a": {"$ref": "#/definitions/i"}}, "type": "object"}, [{"a": 1}, {}], [{"a": "x"}, 3]),
]
TREE = {"type": "object", "properties": {"value": INT, "children": {"type": "array", "items": {"$ref": "#"}}}, "required": ["value"]}
LINKED = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": INT, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}}  # fmt: skip
RECURSIVE: list[Made] = [
    (TREE, [{"value": 1}, {"value": 1, "children": [{"value": 2, "children": []}]}], [{"value": 1, "children": [{}]}, {}]),
    (LINKED, [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}], [{"v": 1}, {"v": 1, "next": {"v": 2}}]),
]


PLAIN_SPECIAL = [made for made in SPECIAL if made[0].keys() & {"allOf", "anyOf", "$ref", "enum", "const", "required"}]


def _inside(rng: random.Random, made: Made) -> Made:
    """A special schema as a property of an ordinary object, or as it is."""
    below, good, bad = made
    if "$defs" in below or "$schema" in below or rng.random() < 0.3:
        return made
    outer, (full, least, other), broken = _object(rng, rng.randint(1, 5), FIELDS)
    outer = {**outer, "properties": {**outer["properties"], "extra": below}}
    more = [{**(full if "extra" not in full else other), "extra": one} for one in good]
    return outer, [*more, {**full, "extra": good[0]}, {**other, "extra": good[-1]}], [{**full, "extra": one} for one in bad] + broken[:2]


def drawn(rng: random.Random) -> Iterator[Made]:
    """Schemas without end: four fifths are plain, the rest have a keyword that is harder.

    The share is such that llguidance refuses about as many of all as it does of schemas collected from
    public repositories, which is 13 %.
    """
    while True:
        lot = rng.random()
        if lot < 0.74:
            yield _object(rng, rng.randint(1, 8), FIELDS)
        elif lot < 0.82:
            yield _list(rng)
        elif lot < 0.89:
            yield _inside(rng, rng.choice(SPECIAL))
        else:
            yield _inside(rng, rng.choice(PLAIN_SPECIAL))


def sorted_out(made: Made) -> tuple[Any, list[Any], list[Any]]:
    """The schema with the instances of which jsonschema, formats included, thinks the same, each once."""
    schema, good, bad = made
    kind = validator_for(schema, default=validator_for(LATEST))
    kind.check_schema(schema)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    valid = {json.dumps(one): one for one in good if validator.is_valid(one)}
    invalid = {json.dumps(one): one for one in bad if not validator.is_valid(one)}
    return schema, list(valid.values())[:4], list(invalid.values())[:5]


def main() -> None:
    rng = random.Random(20261121)
    found: dict[str, dict[str, Any]] = {}
    templates = ((f"drawn-{index}", made) for index, made in enumerate(drawn(rng)))
    for name, made in [*((f"special-{index}", made) for index, made in enumerate([*SPECIAL, *OLD, *RECURSIVE])), *BY_HAND]:
        _keep(found, name, made)
    for name, made in templates:
        if len(found) >= COUNT + len(BY_HAND):
            break
        _keep(found, name, made)
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in found.values()]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _keep(found: dict[str, dict[str, Any]], name: str, made: Made) -> None:
    schema, valid, invalid = sorted_out(made)
    if len(valid) > 1 and len(invalid) > 1:
        found.setdefault(json.dumps(schema), {"name": name, "schema": schema, "valid": valid, "invalid": invalid})


if __name__ == "__main__":
    main()
