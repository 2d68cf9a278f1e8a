"""Templates of schemas, each with instances that satisfy it and instances that do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from scripts.schema_specials import SPECIAL, Made

__all__ = ["drawn"]

NAMES = (
    "id name title email age price count tags status kind owner url path host port created updated size color"
    " width height address city zip country items notes enabled version license author score level parent"
).split()


# Fields: what stands in real schemas, as often as it does.
def _text(rng: random.Random) -> Made:
    return {"type": "string"}, ["abc", "", 'say "hi"\n', "é😀"], [3, None, ["a"]]


def _described(rng: random.Random) -> Made:
    schema = {
        "type": "string",
        "title": "A text",
        "description": "Any text.",
        "default": "x",
        "examples": ["y"],
    }
    return schema, ["x", "longer text"], [1, {}]


def _bounded_text(rng: random.Random) -> Made:
    low, high = rng.choice([(1, 5), (0, 3), (2, 80), (3, 3)])
    schema = {
        "type": "string",
        **({"minLength": low} if low else {}),
        **({"maxLength": high} if rng.random() < 0.8 else {}),
    }
    return (
        schema,
        ["a" * max(low, 1), "ab\n"[: max(low, 3)], "é" * low or "x"],
        ["a" * (high + 1), "a" * (low - 1), 3],
    )


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
        return (
            {**schema, "minimum": low, "maximum": high},
            [low, high, (low + high) // 2],
            [low - 1, high + 1, "1", 0.5],
        )
    if rng.random() < 0.4:
        return {**schema, "exclusiveMinimum": 0}, [1, 12345], [0, -1, "a"]
    return schema, [0, -7, 12345], ["1", 1.5, None]


def _number(rng: random.Random) -> Made:
    low, high = rng.choice([(0, 1), (-90, 90), (0, 9.99), (-1.5, 2.25)])
    if rng.random() < 0.5:
        return (
            {"type": "number", "minimum": low, "maximum": high},
            [low, high, 0.5],
            [low - 0.5, high + 0.01, "0"],
        )
    return {"type": "number"}, [0, 1.5, -2e-3], ["0", None, True]


def _multiple(rng: random.Random) -> Made:
    if rng.random() < 0.5:
        return {"type": "number", "multipleOf": 0.01}, [1.25, 3, 0.1], [0.125, 1.001]
    step = rng.choice([2, 5, 10, 15])
    schema = {
        "type": "integer",
        "multipleOf": step,
        **({"minimum": 0, "maximum": step * 20} if rng.random() < 0.5 else {}),
    }
    return schema, [0, step, step * 3], [1, step + 1, step * 2 - 1]


def _flag(rng: random.Random) -> Made:
    return {"type": "boolean"}, [True, False], ["true", 0, None]


def _choice(rng: random.Random) -> Made:
    values = rng.choice(
        [["red", "green", "blue"], ["a"], ["low", "mid", "high", None], [1, 2, 3], ['in"ch', "cm", "ä"]]
    )
    return {"enum": values}, list(values), ["other", 99, [], "re"]


def _typed_choice(rng: random.Random) -> Made:
    return (
        {"type": "string", "enum": ["open", "closed", "in progress"]},
        ["open", "in progress"],
        ["shut", None, ""],
    )


def _constant(rng: random.Random) -> Made:
    value = rng.choice(["v1", 1, True, None, "x\ty"])
    return {"const": value}, [value], ["v2", 2, False]


def _nullable(rng: random.Random) -> Made:
    below, good, bad = rng.choice([_text, _whole, _bounded_text])(rng)
    form = rng.random()
    if form < 0.5 and isinstance(below.get("type"), str):
        return (
            {**below, "type": [below["type"], "null"]},
            [*good, None],
            [one for one in bad if one is not None] + [[1]],
        )
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
    *(
        _text,
        _text,
        _described,
        _whole,
        _whole,
        _number,
        _flag,
        _flag,
        _typed_choice,
        _choice,
        _formatted,
        _bounded_text,
    ),
    *(
        _patterned,
        _constant,
        _nullable,
        _list,
        _list,
        _record,
        _union,
        _map,
        _formatted,
        _text,
        _bounded_text,
    ),
    *(_tuple, _free, _multiple, _patterned_bounded),
]


def _object(rng: random.Random, count: int, kinds: list[Callable[[random.Random], Made]]) -> Made:
    names = rng.sample(NAMES, count)
    made = {name: rng.choice(kinds)(rng) for name in names}
    required = [name for name in names if rng.random() < 0.6] or names[:1]
    schema: dict[str, Any] = {"type": "object", "properties": {name: one[0] for name, one in made.items()}}
    if rng.random() < 0.9:
        schema["required"] = required
    if closed := rng.random() < 0.5:
        schema["additionalProperties"] = False
    full = {name: one[1][0] for name, one in made.items()}
    least = {name: made[name][1][-1] for name in names if name in required}
    good = [full, least, {name: rng.choice(one[1]) for name, one in made.items()}]
    bad: list[Any] = [{**full, name: rng.choice(one[2])} for name, one in made.items()]
    bad += [{key: value for key, value in full.items() if key != name} for name in required]
    bad += [{**full, "surplus": 1}] if closed else []
    return schema, good, [*bad, [], "x"]


PLAIN_SPECIAL = [
    made for made in SPECIAL if made[0].keys() & {"allOf", "anyOf", "$ref", "enum", "const", "required"}
]


def _inside(rng: random.Random, made: Made) -> Made:
    """Return a special schema as a property of an ordinary object, or as it is."""
    below, good, bad = made
    if "$defs" in below or "$schema" in below or rng.random() < 0.3:
        return made
    outer, (full, _, other), broken = _object(rng, rng.randint(1, 5), FIELDS)
    outer = {**outer, "properties": {**outer["properties"], "extra": below}}
    more = [{**(full if "extra" not in full else other), "extra": one} for one in good]
    return (
        outer,
        [*more, {**full, "extra": good[0]}, {**other, "extra": good[-1]}],
        [{**full, "extra": one} for one in bad] + broken[:2],
    )


def drawn(rng: random.Random) -> Iterator[Made]:
    """Yield random schemas: four fifths are plain, the others have a less usual keyword.

    The share is such that llguidance refuses about 13 % of them, as it does of schemas collected from public
    repositories.
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
