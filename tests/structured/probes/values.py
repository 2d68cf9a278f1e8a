"""Types, lists of types, constants and enumerations."""

from __future__ import annotations

from tests.structured.probes.probe import judged

EACH = {
    "null": None,
    "boolean": True,
    "integer": 3,
    "number": 1.5,
    "string": "ab",
    "array": [1, "a"],
    "object": {"a": [1], "b": "c"},
}
LISTED = {
    **EACH,
    "string:escaped": 'a"\\\n\t\u0001',
    "string": "é😀/",
    "number:huge": 1e300,
    "array:huge": [1e300],
    "object:huge": {"a": 1e300},
}
POOL = (*EACH.values(), LISTED["string"], False, 0, 4, "a", "", [], {}, [1], {"a": 1}, 2.5)


def _types():
    for kind in EACH:
        yield judged("type", {"type": kind}, *POOL)
        yield judged("type:list", {"type": [kind, "null" if kind != "null" else "boolean"]}, *POOL)
    yield judged("type:list", {"type": ["string", "integer", "object"]}, *POOL)


def _listed():
    for kind, value in LISTED.items():
        yield judged(f"const:{kind}", {"const": value}, *POOL, value)
        yield judged(f"enum:{kind}", {"enum": [value, "zz"]}, *POOL, value, "zz")
    yield judged("const:string", {"const": ""}, "", "a")
    yield judged("const:boolean", {"const": False}, True, False, 0)
    yield judged("const:integer", {"const": -3}, -3, 3)
    yield judged("enum:integer", {"enum": [1, 2, 3]}, 0, 1, 2, 3, 4, "1")
    yield judged("enum:empty", {"enum": []}, 1, "a")
    yield judged("enum+type", {"type": "string", "enum": ["a", 1]}, "a", 1, "b")
    yield judged("const+type", {"type": "string", "const": 1}, "a", 1)
    for keyword, value in (
        ("minimum", 3),
        ("maxLength", 2),
        ("required", ["a"]),
        ("items", {"type": "integer"}),
    ):
        listed = [1, 5, "ab", "abc", {"a": 1}, {}, [1], ["a"]]
        yield judged("enum+keywords", {"enum": listed, keyword: value}, *listed, 7, "b", {"a": 2}, [2])
    yield judged("const+keywords", {"const": 3, "minimum": 5}, 3, 5)
    yield judged("const+keywords", {"const": 7, "minimum": 5}, 7, 5)
    yield judged("const+keywords", {"const": 7, "enum": [3, 7]}, 7, 3)


PROBES = [*_types(), *_listed()]
