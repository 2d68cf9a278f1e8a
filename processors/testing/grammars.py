"""Hostile grammars that a back end has to survive: too large, too deep, endless.

Each is named after its fault. Some are harmless for some back ends. None may crash the process or exceed its
limits of time and memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable

__all__ = ["HOSTILE"]

_HUGE = 1_000_000_000
_LEVELS = 10_000


def _schema(**keywords: object) -> str:
    return json.dumps(keywords)


def _nested(opening: str, inside: str, closing: str, levels: int = _LEVELS) -> str:
    return opening * levels + inside + closing * levels


def _large_schema() -> str:
    fields = ",".join(f'"field {n:06}": {{"type": "string", "title": "a field"}}' for n in range(370_000))
    return f'{{"type": "object", "properties": {{{fields}}}}}'


def _doubling_refs() -> str:
    levels: dict[str, object] = {
        f"level{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/level{n + 1}"}] * 2, "minItems": 2}
        for n in range(40)
    }
    return _schema(**{"$ref": "#/$defs/level0", "$defs": {**levels, "level40": {"type": "null"}}})


def _many_unions() -> str:
    unions = [{"anyOf": [{"minLength": n}, {"maxLength": 100 + n}]} for n in range(24)]
    return _schema(type="string", allOf=unions)


def _slow_schema() -> str:
    """Return a schema of 60 long bounded patterns, which takes minutes with a vocabulary of 150k ids."""
    field = {"type": "string", "pattern": "^([A-Za-z]{1,60}[ -]){1,60}[0-9]{1,60}$"}
    return _schema(
        type="object",
        properties={
            f"field{n}": {**field, "pattern": field["pattern"].replace("60", f"{60 + n}")} for n in range(60)
        },
        required=[f"field{n}" for n in range(60)],
    )


_REGEX: dict[str, str] = {
    "catastrophic": r"(x+x+)+y",
    "exponential automaton": r"[ab]*a[ab]{30}",
    "nested repeats": r"((a{0,100}){0,100}){0,100}",
    "huge repeat": "a{1000000000}",
    "huge optional repeat": "(ab?){0,1000000000}",
    "long forced text": "(a?){5000}a{5000}",
    "deep groups": _nested("(", "a", ")"),
    "unicode classes": r"[\p{L}\p{N}]{1,3000}",
    "no text": r"[^\s\S]",
}

_EBNF: dict[str, str] = {
    "left-recursive": 'root ::= root "a" | "b"',
    "only itself": "root ::= root",
    "itself or nothing": 'root ::= root root | ""',
    "never ends": 'root ::= "a" root',
    "empty": "",
    "no such rule": "root ::= other",
    "huge repeat": 'root ::= "a"{1000000000}',
    "nested repeats": 'root ::= ((("a"{0,100}){0,100}){0,100}){0,100}',
    "ambiguous": 'root ::= root root | root root root | "a"',
    "deep groups": "root ::= " + _nested("(", '"a"', ")"),
    "long chain": "root ::= r0\n"
    + "".join(f'r{n} ::= "a" r{n + 1} | "b"\n' for n in range(50_000))
    + 'r50000 ::= "c"',
}

_SCHEMAS: dict[str, Callable[[], str]] = {
    "deep schema": lambda: _nested('{"type": "array", "items": ', '{"type": "null"}', "}"),
    "deep constant": lambda: _nested('{"const": [', "1", "]}", 1).replace("1", _nested("[", "1", "]")),
    "recursive schema": lambda: _schema(type="array", items={"$ref": "#"}),
    "itself": lambda: _schema(**{"$ref": "#"}),
    "cycle of references": lambda: _schema(
        **{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "endless document": lambda: _schema(
        type="object", properties={"next": {"$ref": "#"}}, required=["next"], additionalProperties=False
    ),
    "doubling references": _doubling_refs,
    "many unions": _many_unions,
    "20 MB": _large_schema,
    "a million choices": lambda: _schema(enum=[f"choice {n}" for n in range(1_000_000)]),
    "huge maxItems": lambda: _schema(type="array", items={"type": "null"}, maxItems=_HUGE),
    "huge minItems": lambda: _schema(type="array", items={"type": "null"}, minItems=_HUGE),
    "huge maxLength": lambda: _schema(type="string", maxLength=_HUGE),
    "huge minLength": lambda: _schema(type="string", minLength=_HUGE),
    "huge minProperties": lambda: _schema(type="object", minProperties=_HUGE),
    "huge number": lambda: f'{{"type": "integer", "minimum": 1{"0" * 4000}}}',
    "tiny multipleOf": lambda: '{"type": "number", "multipleOf": 1e-300}',
    "hours to compile": _slow_schema,
    **{
        f"pattern: {name}": lambda pattern=pattern: _schema(type="string", pattern=f"^{pattern}$")  # type: ignore[misc]
        for name, pattern in _REGEX.items()
    },
}

_LARK = {
    name: text.replace("root", "start").replace(" ::=", ":").replace('| ""', "|")
    for name, text in _EBNF.items()
}

HOSTILE: dict[tuple[str, str], Callable[[], str]] = {
    **{("json_schema", name): make for name, make in _SCHEMAS.items()},
    **{("regex", name): lambda text=text: text for name, text in _REGEX.items()},  # type: ignore[misc]
    **{("ebnf", name): lambda text=text: text for name, text in _EBNF.items()},  # type: ignore[misc]
    **{("lark", name): lambda text=text: text for name, text in _LARK.items()},  # type: ignore[misc]
}
