"""Schemas with less usual keywords, each with instances that satisfy it and instances that do not."""

from __future__ import annotations

from typing import Any

__all__ = ["OLD", "RECURSIVE", "SPECIAL", "Made"]

Made = tuple[Any, list[Any], list[Any]]  # a schema, good instances, bad ones

# What a schema has now and then, on top of an object with the properties a (integer) and b (string).
AB = {"a": {"type": "integer"}, "b": {"type": "string"}}
CAT = {
    "type": "object",
    "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}},
    "required": ["kind"],
}
DOG = {
    "type": "object",
    "properties": {"kind": {"const": "dog"}, "tricks": {"type": "array"}},
    "required": ["kind"],
}
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
        {
            "allOf": [
                {"type": "object", "properties": {"a": INT}, "required": ["a"]},
                {"properties": {"b": STR}, "required": ["b"]},
            ]
        },
        [{"a": 1, "b": "x"}, {"a": 2, "b": ""}],
        [{"a": 1}, {"a": 1, "b": 2}],
    ),
    ({"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 4}]}, ["ab", "abcd"], ["a", "abcde"]),
    ({"type": "integer", "allOf": [{"minimum": 3}, {"multipleOf": 2}]}, [4, 6], [2, 5]),
    ({"type": "string", "not": {"enum": ["root", "admin"]}}, ["ann", "roo", "rooty"], ["root", "admin"]),
    ({"type": ["integer", "string"], "not": {"type": "string"}}, [1, 2], ["a", None]),
    (
        {"type": "object", "properties": AB, "not": {"required": ["a", "b"]}},
        [{"a": 1}, {}],
        [{"a": 1, "b": "x"}, 3],
    ),
    ({"type": "integer", "not": {"const": 13}}, [12, 14, 0], [13, "a"]),
    (
        {
            "type": "object",
            "properties": AB,
            "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
            "then": {"required": ["b"]},
        },
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
    (
        {"type": "object", "properties": AB, "dependentRequired": {"a": ["b"]}},
        [{"b": "x"}, {"a": 1, "b": "x"}],
        [{"a": 1}, 3],
    ),
    (
        {
            "type": "object",
            "properties": AB,
            "dependentSchemas": {"a": {"properties": {"b": {"minLength": 2}}}},
        },
        [{"b": "x"}, {"a": 1, "b": "xy"}],
        [{"a": 1, "b": "x"}, 3],
    ),
    ({"type": "array", "items": INT, "uniqueItems": True}, [[1, 2], []], [[1, 1], ["a"]]),
    (
        {"type": "array", "items": {"enum": ["r", "w", "x"]}, "uniqueItems": True},
        [["r", "x"], []],
        [["r", "r"], ["q"]],
    ),
    (
        {"type": "array", "items": STR, "uniqueItems": True, "maxItems": 4},
        [["a", "b"], ["a"]],
        [["a", "a"], [1]],
    ),
    ({"type": "array", "contains": {"const": "admin"}}, [["admin"], ["a", "admin"]], [["a"], []]),
    (
        {"type": "array", "items": STR, "contains": {"pattern": "^x"}, "maxItems": 3},
        [["xa"], ["a", "x"]],
        [["a"], []],
    ),
    (
        {
            "type": "object",
            "patternProperties": {"^x-": STR},
            "properties": {"a": INT},
            "additionalProperties": False,
        },
        [{"a": 1, "x-b": "c"}, {}],
        [{"x-b": 1}, {"y": "c"}],
    ),
    (
        {"type": "object", "patternProperties": {"^[a-z]+$": INT}, "additionalProperties": False},
        [{"ab": 1}, {}],
        [{"A": 1}, {"a": "x"}],
    ),
    (
        {"type": "object", "propertyNames": {"pattern": "^[a-z_]+$"}, "additionalProperties": INT},
        [{"a_b": 1}, {}],
        [{"A": 1}, {"a": "x"}],
    ),
    (
        {"type": "object", "propertyNames": {"enum": ["en", "de"]}, "additionalProperties": STR},
        [{"en": "x"}, {}],
        [{"fr": "x"}, {"en": 1}],
    ),
    (
        {"type": "object", "properties": AB, "additionalProperties": False, "minProperties": 1},
        [{"a": 1}, {"b": "x"}],
        [{}, {"c": 1}],
    ),
    (
        {"type": "object", "additionalProperties": INT, "maxProperties": 2},
        [{}, {"x": 1, "y": 2}],
        [{"x": 1, "y": 2, "z": 3}, {"x": "y"}],
    ),
    (
        {"type": "object", "properties": AB, "maxProperties": 1},
        [{"a": 1}, {"b": "x"}],
        [{"a": 1, "b": "x"}, 3],
    ),
    (
        {"type": "object", "properties": AB, "unevaluatedProperties": False},
        [{"a": 1}, {}],
        [{"c": 1}, {"a": "x"}],
    ),
    (
        {
            "allOf": [{"properties": {"a": INT}}],
            "type": "object",
            "properties": {"b": STR},
            "unevaluatedProperties": False,
        },
        [{"a": 1, "b": "x"}, {}],
        [{"c": 1}, {"b": 2}],
    ),
    ({"minimum": 3, "maximum": 7}, [3, "a", None], [2, 8]),
    ({"properties": {"a": INT}, "required": ["a"]}, [{"a": 1}, 3], [{}, {"a": "x"}]),
    ({"type": "object", "required": ["a", "b"]}, [{"a": 1, "b": None}, {"a": [], "b": {}}], [{"a": 1}, {}]),
    (
        {"$ref": "#/$defs/port", "$defs": {"port": {**INT, "minimum": 1, "maximum": 65535}}},
        [1, 65535],
        [0, "80"],
    ),
    ({"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {**INT, "minimum": 1}}}, [1, 5], [0, 6]),
    (
        {"$ref": "#word", "$defs": {"w": {"$anchor": "word", **STR, "pattern": "^[a-z]+$"}}},
        ["a", "bc"],
        ["", 1],
    ),
    ({"const": {"a": [1, {"b": None}]}}, [{"a": [1, {"b": None}]}], [{"a": [1]}, 1]),
    ({"enum": [[1, 2], {"x": 1}, "s"]}, [[1, 2], {"x": 1}, "s"], [[2, 1], "t"]),
]
OLD_7 = "http://json-schema.org/draft-07/schema#"
OLD_4 = "http://json-schema.org/draft-04/schema#"
OLD: list[Made] = [
    (
        {"$schema": OLD_7, "type": "array", "items": [INT, STR], "additionalItems": False},
        [[1, "a"], []],
        [["a"], [1, "a", 2]],
    ),
    (
        {"$schema": OLD_7, "type": "object", "properties": AB, "dependencies": {"a": ["b"]}},
        [{"b": "x"}, {}],
        [{"a": 1}, 3],
    ),
    ({"$schema": OLD_4, "type": "number", "minimum": 0, "exclusiveMinimum": True}, [1, 0.5], [0, -1]),
    ({"$schema": OLD_7, "definitions": {"i": INT}, "$ref": "#/definitions/i"}, [1, 2], ["a", None]),
    (
        {
            "$schema": OLD_7,
            "definitions": {"i": INT},
            "properties": {"a": {"$ref": "#/definitions/i"}},
            "type": "object",
        },
        [{"a": 1}, {}],
        [{"a": "x"}, 3],
    ),
]
TREE = {
    "type": "object",
    "properties": {"value": INT, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value"],
}
LINKED = {
    "$ref": "#/$defs/n",
    "$defs": {
        "n": {
            "type": "object",
            "properties": {"v": INT, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}},
            "required": ["v", "next"],
        }
    },
}
RECURSIVE: list[Made] = [
    (
        TREE,
        [{"value": 1}, {"value": 1, "children": [{"value": 2, "children": []}]}],
        [{"value": 1, "children": [{}]}, {}],
    ),
    (
        LINKED,
        [{"v": 1, "next": None}, {"v": 1, "next": {"v": 2, "next": None}}],
        [{"v": 1}, {"v": 1, "next": {"v": 2}}],
    ),
]
