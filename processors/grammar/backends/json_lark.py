"""A JSON Schema as Lark for llguidance, for white space and keywords that its JSON Schema compiler lacks.

White space is part of brackets, commas and colons: it stands behind "{", "[", "," and ":" and before "}" and
"]". llguidance alone would also allow it before "," and ":", where people write none: a model that writes a
line break to end an object could then go on with a comma only.

The keyword `x-lark` marks: - an object with "any-order" has its properties in any order, each at most once; -
an object with "in-order" keeps their order, and may have patternProperties; - an array with "counted" may
have `contains`, whose items `items` allows too, or `uniqueItems` with an `enum`. A property name matches at
most one pattern, and none if it is declared; an object with patterns allows no other names. Values without
brackets stay JSON Schema, and so do unmarked objects with patterns and declared names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from processors.grammar.backends.bag import Bag, Brackets, in_a_row, spelled
from processors.grammar.backends.json_values import spelled_out

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
# A name in the one spelling that json.dumps gives it, and in any.
_NAME = r"""/"(?:[^"\\\x00-\x1f]|\\["\\bfnrt]|\\u00(?:0[0-7bef]|1[0-9a-f]))*"/"""
_FREE_NAME = (
    r"""/"(?:[^"\\\x00-\x1f\x7f]|\\["\\bfnrt]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"""
    r"""|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"/"""
)
_OBJECT, _LIST = Brackets("OPEN", "CLOSE", "NO_MEMBERS"), Brackets("BEGIN", "END", "NO_ITEMS")
_SIMPLE = ("null", "boolean", "integer", "number", "string")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_VALUES = ("enum", "const", "default", "examples")
ARRAY = frozenset(("type", "items", "prefixItems", "minItems", "maxItems"))
_NOTES = ("$schema", "$comment", "title", "description", "default", "examples")
_UNWRITTEN = frozenset(("$defs", "definitions", *_NOTES))
_WITHOUT_NAMES = frozenset(("patternProperties", "minProperties", "maxProperties"))
_OBJECT_KEYS = frozenset(("type", "properties", "required", "additionalProperties")) | _WITHOUT_NAMES
REFERENCE = "#/$defs/"
_FOREIGN = re.compile(r'"\$ref": "(?!#/\$defs/)')  # a reference to what stands outside of a part


def json_options(whitespace: int) -> dict[str, Any]:
    """Return llguidance's options for a schema; `whitespace` is the longest run of white space."""
    options: dict[str, Any] = {
        "item_separator": ",",
        "key_separator": ":",
        "coerce_one_of": False,
        "lenient": False,  # an unknown keyword is an error
        "whitespace_flexible": whitespace > 0,
    }
    return {**options, "whitespace_pattern": _space(1, whitespace)} if whitespace > 0 else options


def as_lark(schema: Any, whitespace: int) -> str | None:
    """Return a schema as a Lark grammar; None if llguidance's own compiler does the same."""
    schema = spelled_out(schema) if whitespace else schema
    writer = _Writer(schema, whitespace)
    is_marked = writer.leads(schema)
    if not is_marked and whitespace == 0:
        return None
    try:
        start = writer.rule(schema)
    except (LookupError, RecursionError):  # a reference that only JSON Schema understands, or a deep schema
        if is_marked:
            raise
        return None
    if not is_marked and not writer.has_brackets:
        return None
    rules = "".join(f"{name}: {body}\n" for name, body in {**_signs(whitespace), **writer.rules}.items())
    return f"start: {start}\n{rules}"


def _signs(whitespace: int) -> dict[str, str]:
    """Return the terminals of brackets, commas and colons, with white space."""
    space = _space(0, whitespace) if whitespace else ""
    return {
        "COMMA": f"/,{space}/",
        "COLON": f"/:{space}/",
        "OPEN": rf"/\{{{space}/",
        "CLOSE": rf"/{space}\}}/",
        "NO_MEMBERS": rf"/\{{{space}\}}/",
        "BEGIN": rf"/\[{space}/",
        "END": rf"/{space}\]/",
        "NO_ITEMS": rf"/\[{space}\]/",
    }


def _space(least: int, most: int) -> str:
    return rf"[\x20\x0A\x0D\x09]{{{least},{most}}}"


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
        self.has_brackets = False
        self._defs: dict[str, Any] = root.get("$defs", {}) if isinstance(root, dict) else {}
        self._targets: dict[str, Any] = {"#": root}
        for prefix, key in ((REFERENCE, "$defs"), ("#/definitions/", "definitions")):
            below = root.get(key, {}) if isinstance(root, dict) else {}
            self._targets |= {prefix + name: one for name, one in below.items()}
        self._whitespace = whitespace
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
        schema = {} if schema is True else {key: one for key, one in schema.items() if key not in _UNWRITTEN}
        key = json.dumps(schema)
        if key not in self._names:
            self._names[key] = name = f"r{len(self._names)}"
            self.rules[name] = ""  # keeps its position before the rules of subschemas
            self.rules[name] = self._body(schema, name)
        return self._names[key]

    def _body(self, schema: dict[str, Any], name: str) -> str:
        if schema.keys() == {"$ref"}:
            return self.rule(self._targets[schema["$ref"]])
        if schema.keys() == {"anyOf"}:
            return " | ".join(self.rule(below) for below in schema["anyOf"] if below is not False)
        if parts := _parts(schema):
            return " | ".join(map(self.rule, parts))
        if schema.get(MARK) in ("any-order", "in-order") or _is_plain_object(schema):
            return self._object(schema, name)
        if schema.get(MARK) == "counted":
            return self._add(spelled(self._items(schema), _LIST, name), name)
        is_tuple = isinstance(schema.get("items"), list)  # of older drafts, which llguidance reads
        if schema.get("type") == "array" and schema.keys() <= ARRAY and not is_tuple:
            return self._array(schema, name)
        return self._json(schema)

    def _add(self, rules: dict[str, str], name: str) -> str:
        self.has_brackets = True
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
        options = json_options(0 if schema.get("type") in _SIMPLE else self._whitespace)
        whole = {**unmarked(schema), **({"$defs": defs} if defs else {}), "x-guidance": options}
        text = json.dumps(whole)
        if _FOREIGN.search(text):
            raise LookupError(text)
        return f"%json {text}"

    def _object(self, schema: dict[str, Any], name: str) -> str:
        properties = {key: below for key, below in schema.get("properties", {}).items() if below is not False}
        pairs = {key: f"{_string(key)} COLON {self.rule(below)}" for key, below in properties.items()}
        required = schema.get("required", ())
        others = [
            f"{self.rule({'type': 'string', 'pattern': pattern})} COLON {self.rule(below)}"
            for pattern, below in schema.get("patternProperties", {}).items()
            if below is not False
        ]
        if (rest := schema.get("additionalProperties", True)) is not False:
            others.append(f"{self._other_name(schema, name)} COLON {self.rule(rest)}")
        if schema.get(MARK) == "in-order" or (MARK not in schema and pairs):
            row = [(pair, key in required) for key, pair in pairs.items()]
            return self._add(in_a_row(row, others, _OBJECT, name), name)
        bag = Bag(
            needed=tuple(pair for key, pair in pairs.items() if key in required),
            once=tuple(pair for key, pair in pairs.items() if key not in required),
            many=tuple(others),
            least=schema.get("minProperties", 0),
            most=schema.get("maxProperties"),
        )
        return self._add(spelled(bag, _OBJECT, name), name)

    def _other_name(self, schema: dict[str, Any], name: str) -> str:
        """Return the rule or terminal of the names that an object does not declare."""
        taken = " | ".join(_string(key) for key in schema.get("properties", ()))
        if MARK not in schema and not taken:
            return self.rule({"type": "string"})
        other = f"{name.upper()}_OTHER"
        self.rules[other] = (_NAME if MARK in schema else _FREE_NAME) + (f" & ~({taken})" if taken else "")
        return other

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
            self.rules[behind] = item if high == 0 else f"{item} (COMMA {item}){{{low},{high}}}"
        for index, head in reversed(list(enumerate(heads))):
            more = f" (COMMA {behind}){'?' * (least <= index + 1)}" if behind else ""
            behind = f"{name}_from{index}"
            self.rules[behind] = self.rule(head) + more
        self.has_brackets = True
        whole = [f"{_LIST.opening} {behind} {_LIST.closing}"] if behind else []
        return " | ".join([*whole, _LIST.empty] if least == 0 or not whole else whole)


def _parts(schema: dict[str, Any]) -> list[Any]:
    """Return schemas for the types of this one, those with brackets apart; [] if it need not be parted."""
    if not schema:
        return [{"type": [*_SIMPLE]}, {"type": "array"}, {"type": "object"}]
    types = schema.get("type")
    if schema.keys() == {"type"} and isinstance(types, list):
        simple = [one for one in types if one in _SIMPLE]
        nested = [{"type": one} for one in types if one not in _SIMPLE]
        return [*([{"type": simple}] if simple else []), *nested] if nested else []
    return []


def _is_plain_object(schema: dict[str, Any]) -> bool:
    """Whether an unmarked object has only what Lark can say, each required property declared."""
    if schema.get("type") != "object" or not schema.keys() <= _OBJECT_KEYS:
        return False
    if properties := schema.get("properties"):
        required = schema.get("required", ())
        return not schema.keys() & _WITHOUT_NAMES and all(
            properties.get(name, False) is not False for name in required
        )
    patterns = schema.get("patternProperties")
    is_alone = not patterns or (len(patterns) == 1 and schema.get("additionalProperties") is False)
    return is_alone and not schema.get("required")


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
