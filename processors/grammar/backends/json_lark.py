"""A JSON Schema as Lark for llguidance, for keywords that its JSON Schema compiler lacks.

The keyword `x-lark` marks schemas to translate: - an object with "any-order" has its properties in any order,
each at most once; - an object with "in-order" keeps their order, and may have patternProperties; - an array
with "counted" may have `contains`, whose items `items` allows too, or `uniqueItems` with an `enum`. Schemas
around marked ones are written in Lark as well; all others stay JSON Schema. A property name matches at most
one pattern, and none if it is declared; an object with patterns allows no other names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from processors.grammar.backends.bag import Bag, in_a_row, spelled

__all__ = [
    "ARRAY",
    "MARK",
    "REFERENCE",
    "as_lark",
    "json_options",
    "leading",
    "leads",
    "references",
    "subschemas",
    "unmarked",
]

MARK = "x-lark"
# A name in the one spelling that json.dumps gives it.
_NAME = r"""/"(?:[^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00(?:0[0-7bef]|1[0-9a-f]))*"/"""
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_VALUES = ("enum", "const", "default", "examples")
ARRAY = frozenset(("type", "items", "prefixItems", "minItems", "maxItems"))
REFERENCE = "#/$defs/"


def json_options(whitespace: int) -> dict[str, Any]:
    """Return llguidance's options for a schema; `whitespace` is the longest run of white space."""
    options: dict[str, Any] = {
        "item_separator": ",",
        "key_separator": ":",
        "coerce_one_of": False,
        "lenient": False,  # an unknown keyword is an error
        "whitespace_flexible": whitespace > 0,
    }
    return {**options, "whitespace_pattern": _space(whitespace)} if whitespace > 0 else options


def as_lark(schema: Any, whitespace: int) -> str | None:
    """Return a schema as a Lark grammar; None if nothing in it is marked."""
    writer = _Writer(schema, whitespace)
    if not writer.leads(schema):
        return None
    start = writer.rule(schema)
    skip = f"%ignore /{_space(whitespace)}/\n" if whitespace > 0 else ""
    rules = "".join(f"{name}: {body}\n" for name, body in writer.rules.items())
    return f'%llguidance {{"ignore_once": true}}\n{skip}start: {start}\n{rules}'


def _space(most: int) -> str:
    return rf"[\x20\x0A\x0D\x09]{{1,{most}}}"


def leading(defs: dict[str, Any]) -> frozenset[str]:
    """Return the references to definitions that lead to a marked schema."""
    found: frozenset[str] = frozenset()
    while True:
        more = frozenset(REFERENCE + name for name, below in defs.items() if leads(below, found))
        if more == found:
            return found
        found = more


def leads(schema: Any, references: frozenset[str]) -> bool:
    """Whether a schema contains a marked schema or one of these references."""
    if not isinstance(schema, dict):
        return False
    if MARK in schema or schema.get("$ref") in references:
        return True
    return any(leads(one, references) for one in subschemas(schema))


class _Writer:
    """Writes the rules of a schema, one for each distinct subschema."""

    def __init__(self, root: Any, whitespace: int) -> None:
        self.rules: dict[str, str] = {}  # name -> body
        self._defs: dict[str, Any] = root.get("$defs", {}) if isinstance(root, dict) else {}
        self._options = json_options(whitespace)
        self._names: dict[str, str] = {}  # a schema as text -> its rule
        self._leading = leading(self._defs)

    def leads(self, schema: Any) -> bool:
        """Whether a schema contains or refers to a marked schema."""
        return leads(schema, self._leading)

    def rule(self, schema: Any) -> str:
        """Return the name of a schema's rule, written on first use."""
        if schema is False:
            self.rules["NEVER"] = r"/[^\s\S]/"
            return "NEVER"
        schema = {} if schema is True else {key: below for key, below in schema.items() if key != "$defs"}
        key = json.dumps(schema)
        if key not in self._names:
            self._names[key] = name = f"r{len(self._names)}"
            self.rules[name] = ""  # keeps its position before the rules of subschemas
            self.rules[name] = self._body(schema, name)
        return self._names[key]

    def _body(self, schema: dict[str, Any], name: str) -> str:
        if not self.leads(schema):
            return self._json(schema)
        if schema.keys() == {"$ref"}:
            return self.rule(self._defs[schema["$ref"].removeprefix(REFERENCE)])
        if schema.keys() == {"anyOf"}:
            return " | ".join(self.rule(below) for below in schema["anyOf"] if below is not False)
        if schema.get(MARK) in ("any-order", "in-order"):
            return self._object(schema, name)
        if schema.get(MARK) == "counted":
            return self._add(spelled(self._items(schema), "[]", name), name)
        if schema.get("type") == "array" and schema.keys() <= ARRAY:
            return self._array(schema, name)
        return self._json(schema)

    def _add(self, rules: dict[str, str], name: str) -> str:
        self.rules.update(rules)
        return rules[name]

    def _json(self, schema: dict[str, Any]) -> str:
        """Return the rule body of an unmarked schema, with the definitions that it refers to."""
        defs: dict[str, Any] = {}
        queue = list(references(schema))
        for name in queue:
            if name not in defs and name in self._defs:
                defs[name] = unmarked(self._defs[name])
                queue.extend(references(defs[name]))
        whole = {**unmarked(schema), **({"$defs": defs} if defs else {}), "x-guidance": self._options}
        return f"%json {json.dumps(whole)}"

    def _object(self, schema: dict[str, Any], name: str) -> str:
        properties = {key: below for key, below in schema.get("properties", {}).items() if below is not False}
        pairs = {key: f'{_string(key)} ":" {self.rule(below)}' for key, below in properties.items()}
        required = schema.get("required", ())
        others = [
            f'{self.rule({"type": "string", "pattern": pattern})} ":" {self.rule(below)}'
            for pattern, below in schema.get("patternProperties", {}).items()
            if below is not False
        ]
        if (rest := schema.get("additionalProperties", True)) is not False:
            other = f"{name.upper()}_OTHER"
            taken = [_string(key) for key in schema.get("properties", ())]
            self.rules[other] = _NAME + (f" & ~({' | '.join(taken)})" if taken else "")
            others.append(f'{other} ":" {self.rule(rest)}')
        if schema[MARK] == "in-order":
            row = [(pair, key in required) for key, pair in pairs.items()]
            return self._add(in_a_row(row, others, "{}", name), name)
        bag = Bag(
            needed=tuple(pair for key, pair in pairs.items() if key in required),
            once=tuple(pair for key, pair in pairs.items() if key not in required),
            many=tuple(others),
            least=schema.get("minProperties", 0),
            most=schema.get("maxProperties"),
        )
        return self._add(spelled(bag, "{}", name), name)

    def _items(self, schema: dict[str, Any]) -> Bag:
        bounds: dict[str, Any] = {"least": schema.get("minItems", 0), "most": schema.get("maxItems")}
        if "contains" in schema:
            wanted = (self.rule(schema["contains"]),) * schema.get("minContains", 1)
            return Bag(needed=wanted, many=(self.rule(schema.get("items", True)),), **bounds)
        return Bag(once=tuple(self.rule({"enum": [value]}) for value in schema["items"]["enum"]), **bounds)

    def _array(self, schema: dict[str, Any], name: str) -> str:
        heads, rest = schema.get("prefixItems", []), schema.get("items", True)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if False in heads:
            heads, rest = heads[: heads.index(False)], False
        if most is not None:
            heads, rest = heads[:most], rest if most > len(heads) else False
        behind = ""  # rules for the text that may follow: brackets may not be nested deeply
        if rest is not False:
            low, high = max(0, least - len(heads) - 1), "" if most is None else most - len(heads) - 1
            item, behind = self.rule(rest), f"{name}_rest"
            self.rules[behind] = item if high == 0 else f'{item} ("," {item}){{{low},{high}}}'
        for index, head in reversed(list(enumerate(heads))):
            more = f' ("," {behind}){"?" * (least <= index + 1)}' if behind else ""
            behind = f"{name}_from{index}"
            self.rules[behind] = self.rule(head) + more
        return f'"[" {behind}{"?" * (least == 0)} "]"' if behind else '"[" "]"'


def subschemas(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the direct subschemas of a schema."""
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list) and key in _LISTS:
            yield from value
        elif isinstance(value, dict) and key not in _VALUES:
            yield value


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to directly."""
    if isinstance(schema, dict):
        if str(schema.get("$ref", "")).startswith(REFERENCE):
            yield schema["$ref"].removeprefix(REFERENCE)
        for below in subschemas(schema):
            yield from references(below)


def unmarked(schema: Any) -> Any:
    """Return the schema without marks."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: unmarked(below) for name, below in value.items()}
        elif isinstance(value, list) and key in _LISTS:
            found[key] = list(map(unmarked, value))
        elif key != MARK:
            found[key] = value if key in _VALUES else unmarked(value)
    return found


def _string(key: str) -> str:
    """Return the JSON text of a name as a Lark string."""
    return json.dumps(json.dumps(key, ensure_ascii=False))
