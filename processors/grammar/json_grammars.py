"""JSON schemas as grammars: as Lark for llguidance, with the white space and the keywords that its JSON
Schema compiler lacks, and the white space in the grammars that xgrammar makes of them. White space
stands behind brackets, commas and colons, never before a comma or a colon, where people write none: a
model that writes a line break to end an object could then go on with a comma only. The keyword `x-lark`
(MARK) marks objects and arrays that are written in Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

MAX_ONCE = 48  # members that come at most once, one bit each, if a counter is needed as well
MAX_UNCOUNTED = 64  # the same limit without a counter
MAX_COUNT = 60_000  # limit of the counter, which uses the bits above
MAX_BOUND = 16  # limit of `least` and `most` if both kinds occur: one condition for each split
_COUNT = f"[{MAX_ONCE}:64]"


@dataclass(frozen=True, slots=True)
class Brackets:
    """The terminals of an opening and a closing bracket, and of both with nothing between them."""

    opening: str
    closing: str
    empty: str


@dataclass(frozen=True, slots=True)
class Bag:
    """Symbols in any order: all of `needed`, each of `once` at most once, each of `many` any number of times.

    `least` and `most` bound the total number.
    """

    needed: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None


def spelled(bag: Bag, brackets: Brackets, name: str) -> dict[str, str]:
    """Return the Lark rules {name: body} of a bag; `name` is the start rule."""
    least = max(0, bag.least - len(bag.needed))
    all_came = [f"is_ones([0:{len(bag.needed)}])"] if bag.needed else []
    # No rule only passes its parameter to another rule: llguidance 1.9.1 loses the count there.
    steps = list(_steps(bag))
    first = [f"{symbol} {name}_end::{start}" for symbol, start, _, _ in steps if start is not None]
    more = [f"COMMA {symbol} {name}_end::{change}{_if(checks)}" for symbol, _, change, checks in steps]
    end = f'""{_if([*all_came, *([_came(bag, "ge", least)] if least else [])])}'
    whole = [f"{brackets.opening} ({' | '.join(first)}) {brackets.closing}"] if first else []
    empty = [] if bag.needed or least else [brackets.empty]
    return {name: " | ".join([*whole, *empty]), f"{name}_end::_": " | ".join([end, *more])}


def in_a_row(
    members: Sequence[tuple[str, bool]], many: Sequence[str], brackets: Brackets, name: str
) -> dict[str, str]:
    """Return the Lark rules of (symbol, is required) in this order, followed by any number of `many`."""
    row = [
        _BagMember(symbol, f"(COMMA {symbol}){'' if is_needed else '?'}", is_needed)
        for symbol, is_needed in members
    ]
    if many:
        other = f"({' | '.join(many)})"
        row.append(_BagMember(f"{other} (COMMA {other})*", f"(COMMA {other})*", is_needed=False))
    if not row:
        return {name: brackets.empty}
    whole, rules = _row(row, name)
    empty = "" if any(member.is_needed for member in row) else f" | {brackets.empty}"
    return {name: f"{brackets.opening} {whole.first} {brackets.closing}{empty}", **rules}


@dataclass(frozen=True, slots=True)
class _BagMember:
    """One member or several: at least one of them, the first without a comma; each of them with one."""

    first: str
    later: str
    is_needed: bool


def _row(row: Sequence[_BagMember], name: str) -> tuple[_BagMember, dict[str, str]]:
    """Return members in this order as one, and its rules: a balanced tree, since llguidance recurses."""
    if len(row) == 1:
        return row[0], {}
    middle = len(row) // 2
    (left, begin), (right, end) = _row(row[:middle], f"{name}_l"), _row(row[middle:], f"{name}_r")
    first = f"{left.first} {right.later}" + ("" if left.is_needed else f" | {right.first}")
    rules = {f"{name}_first": first, f"{name}_later": f"{left.later} {right.later}"}
    is_needed = left.is_needed or right.is_needed
    return _BagMember(f"{name}_first", f"{name}_later", is_needed), {**rules, **begin, **end}


def _steps(bag: Bag) -> Iterator[tuple[str, int | None, str, tuple[str, ...]]]:
    """Yield of each member: symbol, parameter after it if it is first (None: never), change, conditions."""
    for bit, symbol in enumerate(bag.needed):
        is_again = bit > 0 and bag.needed[bit - 1] == symbol  # equal symbols are adjacent, and used in order
        before = (f"bit_set({bit - 1})",) if is_again else ()
        yield symbol, None if is_again else 1 << bit, f"set_bit({bit})", (f"bit_clear({bit})", *before)
    room = None if bag.most is None else bag.most - len(bag.needed)  # for members that are not required
    if room is not None and room <= 0:
        return
    below = () if room is None else (_came(bag, "le", room - 1),)
    for bit, symbol in enumerate(bag.once, len(bag.needed)):
        yield symbol, 1 << bit, f"set_bit({bit})", (f"bit_clear({bit})", *below)
    is_counted = bag.many and (bag.least > len(bag.needed) or room is not None)
    for symbol in bag.many:
        yield symbol, *((1 << MAX_ONCE, f"incr({_COUNT})") if is_counted else (0, "_")), below


def _came(bag: Bag, compare: str, count: int) -> str:
    """Return the condition that at least ("ge") or at most ("le") `count` optional members came."""
    start, size = len(bag.needed), len(bag.once)
    if not bag.once:
        return f"{compare}({_COUNT}, {count})"
    bits = f"bit_count_{compare}([{start}:{start + size}], {{}})".format
    if not bag.many:
        return bits(min(count, size))
    ways = range(min(count, size) + 1)
    conditions = (f"and({bits(once)}, {compare}({_COUNT}, {count - once}))" for once in ways)
    return reduce("or({}, {})".format, conditions)


def _if(conditions: Sequence[str]) -> str:
    """Return the `%if` clause that all of these hold; "" without conditions."""
    return f" %if {reduce('and({}, {})'.format, conditions)}" if conditions else ""


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
    writer = _LarkWriter(schema, whitespace)
    is_marked = leads(schema, leading(writer.defs))
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
    space = _space(0, whitespace) if whitespace else ""
    signs = {
        "COMMA": f"/,{space}/",
        "COLON": f"/:{space}/",
        "OPEN": rf"/\{{{space}/",
        "CLOSE": rf"/{space}\}}/",
        "NO_MEMBERS": rf"/\{{{space}\}}/",
        "BEGIN": rf"/\[{space}/",
        "END": rf"/{space}\]/",
        "NO_ITEMS": rf"/\[{space}\]/",
    }
    rules = "".join(f"{name}: {body}\n" for name, body in {**signs, **writer.rules}.items())
    return f"start: {start}\n{rules}"


def _space(shortest: int, longest: int) -> str:
    return rf"[\x20\x0A\x0D\x09]{{{shortest},{longest}}}"


def leading(defs: dict[str, Any]) -> frozenset[str]:
    """Return the references to definitions that lead to a marked schema."""
    marked: frozenset[str] = frozenset()
    while True:
        more = frozenset(REFERENCE + name for name, below in defs.items() if leads(below, marked))
        if more == marked:
            return marked
        marked = more


def leads(schema: Any, references: frozenset[str]) -> bool:
    """Whether a schema contains a marked schema or one of these references."""
    if not isinstance(schema, dict):
        return False
    if MARK in schema or schema.get("$ref") in references:
        return True
    return any(leads(below, references) for below in subschemas(schema))


class _LarkWriter:
    """Writes the rules of a schema, one for each distinct subschema."""

    def __init__(self, root: Any, whitespace: int) -> None:
        self.rules: dict[str, str] = {}  # name -> body
        self.has_brackets = False
        parts: dict[str, Any] = root if isinstance(root, dict) else {}
        self.defs: dict[str, Any] = parts.get("$defs", {})
        self._targets: dict[str, Any] = {"#": root}
        for prefix, key in ((REFERENCE, "$defs"), ("#/definitions/", "definitions")):
            self._targets |= {prefix + name: schema for name, schema in parts.get(key, {}).items()}
        self._whitespace = whitespace
        self._names: dict[str, str] = {}  # a schema as text -> its rule

    def rule(self, schema: Any) -> str:
        """Return the name of a schema's rule, written on first use."""
        if schema is False:
            self.rules["NEVER"] = r"/[^\s\S]/"
            return "NEVER"
        fields = () if schema is True else schema.items()
        schema = {key: below for key, below in fields if key not in _UNWRITTEN}
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
            if name not in defs and name in self.defs:
                defs[name] = unmarked(self.defs[name])
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
        if (additional := schema.get("additionalProperties", True)) is not False:
            declared = " | ".join(_string(key) for key in schema.get("properties", ()))
            if MARK in schema or declared:
                other = f"{name.upper()}_OTHER"  # the names that the object does not declare
                spelling = _NAME if MARK in schema else _FREE_NAME
                self.rules[other] = spelling + (f" & ~({declared})" if declared else "")
            else:
                other = self.rule({"type": "string"})
            others.append(f"{other} COLON {self.rule(additional)}")
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

    def _items(self, schema: dict[str, Any]) -> Bag:
        bounds: dict[str, Any] = {"least": schema.get("minItems", 0), "most": schema.get("maxItems")}
        if "contains" in schema:
            wanted = (self.rule(schema["contains"]),) * schema.get("minContains", 1)
            return Bag(needed=wanted, many=(self.rule(schema.get("items", True)),), **bounds)
        return Bag(once=tuple(self.rule({"enum": [value]}) for value in schema["items"]["enum"]), **bounds)

    def _array(self, schema: dict[str, Any], name: str) -> str:
        heads, tail = schema.get("prefixItems", []), schema.get("items", True)
        least, limit = schema.get("minItems", 0), schema.get("maxItems")
        if False in heads:
            heads, tail = heads[: heads.index(False)], False
        if limit is not None:
            heads, tail = heads[:limit], tail if limit > len(heads) else False
        behind = ""  # rules for the text that may follow: brackets may not be nested deeply
        if tail is not False:
            low, high = max(0, least - len(heads) - 1), "" if limit is None else limit - len(heads) - 1
            item, behind = self.rule(tail), f"{name}_rest"
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
    if schema.keys() != {"type"} or not isinstance(types := schema["type"], list):
        return []
    simple = [kind for kind in types if kind in _SIMPLE]
    nested = [{"type": kind} for kind in types if kind not in _SIMPLE]
    return [*([{"type": simple}] if simple else []), *nested] if nested else []


def _is_plain_object(schema: dict[str, Any]) -> bool:
    """Whether an unmarked object has only what Lark can say, each required property declared."""
    if schema.get("type") != "object" or not schema.keys() <= _OBJECT_KEYS:
        return False
    if properties := schema.get("properties"):
        declared = (properties.get(name, False) for name in schema.get("required", ()))
        return not schema.keys() & _WITHOUT_NAMES and False not in declared
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
    bare = {key: value for key, value in schema.items() if key != MARK}
    return changed_below(bare, unmarked, _MAPS, _LISTS, bare.keys() - set(_VALUES))


def changed_below(
    schema: dict[str, Any],
    change: Callable[[Any], Any],
    maps: Collection[str],
    lists: Collection[str],
    single: Collection[str],
) -> dict[str, Any]:
    """Return the schema with `change` applied to the subschemas under these keywords, in their order.

    The value of a keyword is a map of subschemas, a list of them, or else one of them.
    """
    changed = dict(schema)
    for key, value in schema.items():
        if key in maps and isinstance(value, dict):
            changed[key] = {name: change(below) for name, below in value.items()}
        elif key in lists and isinstance(value, list):
            changed[key] = list(map(change, value))
        elif key in single:
            changed[key] = change(value)
    return changed


def _string(key: str) -> str:
    """Return the JSON text of a name as a Lark string."""
    return json.dumps(json.dumps(key, ensure_ascii=False))


_SPACE = re.compile(r'(whitespace(?:_\d+)?\{0, )\d+\}( "[,:]")?')
# With a count of 1 the white space is printed as a rule without a name of its own.
_LEAST = 2


def with_schema_grammars(xgrammar: Any, value: Any, whitespace: int) -> Any:
    """Return a structural tag with each format `json_schema` as a format `grammar`.

    `whitespace` is the longest run of white space where a format does not say it.
    """
    if isinstance(value, list):
        return [with_schema_grammars(xgrammar, item, whitespace) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "json_schema":
        space = value.get("max_whitespace_cnt", whitespace)
        schema = spelled_out(value.get("json_schema")) if space else value.get("json_schema")
        content = {**value, "json_schema": schema, "max_whitespace_cnt": max(space, _LEAST)}
        grammar = xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": content})
        return {"type": "grammar", "grammar": _spaced(str(grammar), space)}
    return {name: with_schema_grammars(xgrammar, item, whitespace) for name, item in value.items()}


def grammar_of_schema(xgrammar: Any, schema: str, whitespace: int) -> str:
    """Return the EBNF of a JSON schema; `whitespace` is the longest run of white space, 0 for none."""
    if whitespace and '"enum"' in schema:
        with suppress(ValueError):  # xgrammar says what is wrong
            schema = json.dumps(spelled_out(json.loads(schema)), ensure_ascii=False)
    grammar = xgrammar.Grammar.from_json_schema(
        schema, any_whitespace=True, max_whitespace_cnt=max(whitespace, _LEAST), strict_mode=False
    )
    return _spaced(str(grammar), whitespace)


def _spaced(grammar: str, longest: int) -> str:
    """Return the grammar with runs of at most `longest` signs of white space, and none before "," and ":".

    A count of 0 stays in the grammar: without it xgrammar copies rules into one another, and an object of 800
    optional properties takes five times as long to compile.
    """
    return _SPACE.sub(lambda run: f"{run[1]}0}}{run[2]}" if run[2] else f"{run[1]}{longest}}}", grammar)


_MAX_CHARACTERS = 2000  # of an `enum` that is spelled out; each array and object becomes a rule
_VALUE_MAPS = ("properties", "patternProperties", "$defs")
VALUE_LISTS = ("anyOf", "prefixItems")
VALUE_SINGLE = ("items", "additionalProperties", "contains")


def spelled_out(schema: Any) -> Any:
    """Return a schema with the arrays and objects of each `enum` as schemas."""
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"enum"} and len(json.dumps(schema)) <= _MAX_CHARACTERS:
        nested = [_same(value) for value in schema["enum"] if isinstance(value, dict | list)]
        simple = [value for value in schema["enum"] if not isinstance(value, dict | list)]
        return {"anyOf": [*([{"enum": simple}] if simple else []), *nested]} if nested else {"enum": simple}
    return changed_below(schema, spelled_out, _VALUE_MAPS, VALUE_LISTS, VALUE_SINGLE)


def _same(value: Any) -> dict[str, Any]:
    """Return a schema that only this value satisfies."""
    if isinstance(value, list):
        size = len(value)
        items = {"prefixItems": list(map(_same, value)), "items": False, "minItems": size} if value else {}
        return {"type": "array", **items, "maxItems": size}
    if isinstance(value, dict):
        parts = {name: _same(below) for name, below in value.items()}
        return {"type": "object", "properties": parts, "required": [*value], "additionalProperties": False}
    return {"enum": [value]}
