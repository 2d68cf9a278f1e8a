"""Schemas during rewriting: plain dictionaries that keep the origins of each keyword; their intersection,
and the support table: grades of shapes for each back end, written by scripts/probe_backends.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from math import inf, lcm
from pathlib import Path
from typing import Any, Literal

from gencli.structured.ecma_regex import MAX_SEARCHES, MAX_SECONDS, searches
from gencli.structured.json_schema import APPLICATORS, GROUPS, LISTED, MAPPED, SINGLE, References, draft_of
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_errors import GiveUp, child
from gencli.structured.schema_validator import FORMATS, canonical

Schema = dict[str, Any] | bool
Flat = dict[str, Any]  # a schema without applicators for the same value, such as anyOf

AT = "\0at"  # the key of the origins: {keyword: frozenset of JSON pointers}
ALSO = "\0also"  # further flat schemas with one pattern or format each, which have to hold as well
FRACTION = "fraction"  # an internal type: numbers with a fractional part
_KNOWN = frozenset(("type", "enum", "const", *APPLICATORS)).union(*GROUPS.values())
_DEPTH = 60


@dataclass(slots=True)
class Scope:
    """The context of one rewriting, and its findings so far."""

    root: Any
    backend: str
    request: PlanRequest
    references: References
    notes: dict[str, str] = field(default_factory=dict)  # pointer -> how it was rewritten
    unsatisfiable: set[str] = field(default_factory=set)  # pointers of parts that no value satisfies
    left: dict[str, str] = field(default_factory=dict)  # pointer -> why it is left to the final check
    tight: dict[str, str] = field(default_factory=dict)  # pointer -> which valid values are not generated
    unbounded: set[str] = field(default_factory=set)  # pointers of formats without a maximum length
    budget: int = 100_000  # nodes that may still be created
    reachable: set[str] = field(default_factory=set)  # pointers of reachable keywords
    orders: int = 2_000  # orders of properties that may still be written
    marked: dict[str, Schema] = field(default_factory=dict)  # pointer -> the schema with origins

    def note(self, pointers: Iterable[str], text: str) -> None:
        for pointer in pointers:
            self.notes.setdefault(pointer, text)

    def leave(self, pointers: Iterable[str], text: str) -> None:
        """Record why the keywords at these pointers are left to the final check."""
        for pointer in list(pointers) or [""]:  # a keyword created by a rewrite has no origin
            self.left.setdefault(pointer, text)

    def narrow(self, pointers: Iterable[str], text: str) -> None:
        """Record which valid values are not generated because of the keywords at these pointers."""
        for pointer in pointers:
            self.tight.setdefault(pointer, text)

    def spend(self, count: int = 1) -> None:
        """Count created nodes. Raises GiveUp if there are too many, and OutOfTime."""
        self.request.deadline.check()
        self.budget -= count
        if self.budget < 0:
            raise GiveUp("the schema becomes too large")

    def target(self, pointer: str) -> Schema:
        if pointer not in self.marked:
            self.marked[pointer] = mark(self.references.at(pointer), pointer, self)
        return self.marked[pointer]


def mark(schema: Any, pointer: str, scope: Scope, depth: int = 0) -> Schema:
    """Return a copy with origins, without annotations and unknown keywords; each $ref is a JSON pointer."""
    if isinstance(schema, bool):
        return schema
    if depth > _DEPTH:
        raise GiveUp("the schema is too deep")
    scope.spend()
    dynamic = _plain_reference(schema, pointer, scope)
    schema = {"$ref" if key == dynamic else key: below for key, below in schema.items()}
    kept = [keyword for keyword in schema if keyword in _KNOWN]
    if "format" in kept and schema["format"] not in FORMATS:
        kept.remove("format")
    if "$ref" in kept and draft_of(scope.root).ignores_siblings:
        others = (child(pointer, key) for key in kept if key != "$ref")
        scope.note(others, "ignored beside $ref in this draft")
        kept = ["$ref"]
    if "contains" in kept and "contains" not in draft_of(scope.root).judged():
        kept.remove("contains")
        scope.leave([child(pointer, "contains")], "not a keyword of this draft")
    at = {key: child(pointer, dynamic if key == "$ref" and dynamic else key) for key in kept}
    node: Flat = {AT: {key: frozenset([origin]) for key, origin in at.items()}}
    scope.reachable.update(at.values())
    for keyword in kept:
        value, below_it = schema[keyword], child(pointer, keyword)
        if keyword == "$ref":
            value = scope.references.resolve(value, pointer)[0]
        elif keyword in SINGLE and isinstance(value, dict | bool):
            value = mark(value, below_it, scope, depth + 1)
        elif keyword in LISTED and isinstance(value, list):
            value = [mark(item, child(below_it, index), scope, depth + 1) for index, item in enumerate(value)]
        elif keyword in MAPPED:
            schemas = {name: below for name, below in value.items() if not isinstance(below, list)}
            marked = {name: mark(schemas[name], child(below_it, name), scope, depth + 1) for name in schemas}
            value = {**value, **marked}
        node[keyword] = value
    return node


def _plain_reference(schema: dict[str, Any], pointer: str, scope: Scope) -> str:
    """Return the keyword of a dynamic reference that leads to the same place for every value, or "".

    It does if its anchor occurs only once, or is at the root, where every validation begins.
    """
    if "$ref" in schema or not schema.keys() & {"$dynamicRef", "$recursiveRef"}:
        return ""
    is_in_root = scope.references.is_in_root(pointer)
    if schema.get("$recursiveRef") == "#" and is_in_root and draft_of(scope.root).name == "2019-09":
        return "$recursiveRef"
    name = str(schema.get("$dynamicRef", "")).removeprefix("#")
    is_top = is_in_root and scope.root.get("$dynamicAnchor") == name
    is_alone = name.isidentifier() and sum(_anchors(scope.root, name)) <= 1
    return "$dynamicRef" if is_top or is_alone else ""


def _anchors(value: Any, name: str) -> Iterator[int]:
    if isinstance(value, dict):
        yield (value.get("$dynamicAnchor") == name) + 2 * ("$id" in value)
    if isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _anchors(below, name)


def put(node: Flat, keyword: str, value: Any, pointers: Iterable[str] = ()) -> Flat:
    at = node.get(AT, {})
    return {**node, keyword: value, AT: {**at, keyword: at.get(keyword, frozenset()) | frozenset(pointers)}}


def without(node: Flat, *keywords: str) -> Flat:
    at = {key: pointers for key, pointers in node.get(AT, {}).items() if key not in keywords}
    return {**{key: value for key, value in node.items() if key not in keywords}, AT: at}


def origins_of(flat: Flat, *keywords: str) -> frozenset[str]:
    """Return the origins of these keywords."""
    return frozenset[str]().union(*(flat[AT].get(keyword, ()) for keyword in keywords))


def origins(value: Any) -> frozenset[str]:
    """Return the origins of a schema and of all schemas below it."""
    pointers: set[str] = set()
    stack = [value]
    while stack:
        here = stack.pop()
        if isinstance(here, dict):
            pointers.update(*here.get(AT, {}).values())
            stack += [below for key, below in here.items() if key != AT]
        elif isinstance(here, list):
            stack += here
    return frozenset(pointers)


def plain(value: Any) -> Any:
    """Return the schema without its origins."""
    if isinstance(value, dict):
        copy = {key: plain(below) for key, below in value.items() if key not in (AT, ALSO)}
        return {**copy, "allOf": plain(value[ALSO])} if value.get(ALSO) else copy
    return [plain(item) for item in value] if isinstance(value, list) else value


def key_of(value: Any) -> str:
    """Return a text that is equal for schemas that are equal apart from origins."""
    return json.dumps(plain(value), sort_keys=True)


_LARGER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_SMALLER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_OBJECT = ("properties", "patternProperties", "additionalProperties")
_ARRAY = ("prefixItems", "items")
_NOTHING = object()


def intersect_flat(a: Flat, b: Flat) -> Flat | None:
    """Return a flat schema of the values that satisfy both; None if there are none.

    Raises GiveUp if one flat schema cannot express the intersection.
    """
    at = joined_origins(a, b)
    met: Flat = {AT: at}
    done = {AT}
    for keywords, merge in ((_OBJECT, _objects), (_ARRAY, _arrays)):
        if any(key in a for key in keywords) and any(key in b for key in keywords):
            met.update(merge(a, b))
            done.update(keywords)
            for key in keywords:
                if lost := _lost(key, a, b, met):
                    at[key] = at.get(key, frozenset()) | lost
    for key in (*a, *(key for key in b if key not in a)):
        if key in done:
            continue
        if key in a and key in b:
            value = _RULES.get(key, _same)(a[key], b[key])
            if key in ("pattern", "format") and value is _NOTHING:
                met[key] = a[key]
                other = {key: b[key], AT: {key: b.get(AT, {}).get(key, frozenset())}}
                met[ALSO] = [*met.get(ALSO, ()), other]
                continue
            met[key] = value
        elif key == ALSO:
            met[ALSO] = [*met.get(ALSO, ()), *(a.get(ALSO) or b[ALSO])]
        else:
            met[key] = a[key] if key in a else b[key]
    return None if is_empty(met) else met


def joined_origins(a: Flat, b: Flat) -> dict[str, frozenset[str]]:
    """Return the origins of each keyword in both."""
    first, second = a.get(AT, {}), b.get(AT, {})
    return {key: first.get(key, frozenset()) | second.get(key, frozenset()) for key in {**first, **second}}


def _lost(keyword: str, a: Flat, b: Flat, met: Flat) -> frozenset[str]:
    """Return the origins of subschemas that became False."""
    merged = met.get(keyword)
    if merged is False:
        return origins(a.get(keyword)) | origins(b.get(keyword))
    names = merged.items() if isinstance(merged, dict) and AT not in merged else ()
    void = [name for name, below in names if below is False]
    return frozenset(
        pointer for flat in (a, b) for name in void for pointer in origins(flat.get(keyword, {}).get(name))
    )


def intersect(a: Schema, b: Schema) -> Schema:
    """Return a schema of the values that satisfy both."""
    if a is True or a == {} or a == {AT: {}} or (a is not False and a == b):
        return b
    if b is True or b == {} or b == {AT: {}}:
        return a
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    listed, others = _values(a), _values(b)
    return False if listed and others and not listed & others else {"allOf": [a, b], AT: {}}


def _values(schema: Flat) -> frozenset[Any]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    return frozenset(map(canonical, values)) if len(values) < 100 else frozenset()


def is_empty(flat: Flat) -> bool:
    """Whether a flat schema obviously rejects every value."""
    if flat.get("type") == [] or flat.get("enum") == []:
        return True
    types = set(flat.get("type", ()))
    if types and types <= {"integer", "number"}:
        bounds = flat.get("exclusiveMinimum"), flat.get("exclusiveMaximum")
        low = max(flat.get("minimum", -inf), flat.get("exclusiveMinimum", -inf))
        high = min(flat.get("maximum", inf), flat.get("exclusiveMaximum", inf))
        return low > high or (low == high and low in bounds)
    if types == {"string"}:
        return bool(flat.get("minLength", 0) > flat.get("maxLength", inf))
    if types == {"array"}:
        return bool(flat.get("minItems", 0) > flat.get("maxItems", inf))
    required = flat.get("required", ())
    if types != {"object"} or len(required) > flat.get("maxProperties", inf):
        return types == {"object"}
    check_names(flat, required)
    return any(property_schema(flat, name) is False for name in required)


def property_schema(flat: Flat, name: str) -> Schema:
    """Return a flat schema's schema for the property with a name."""
    declared = flat.get("properties", {})
    parts: list[Schema] = [declared[name]] if name in declared else []
    parts += [below for pattern, below in flat.get("patternProperties", {}).items() if matches(pattern, name)]
    return reduce(intersect, parts) if parts else flat.get("additionalProperties", True)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of property names matches a name. Raises GiveUp if the search fails."""
    try:
        return searches(pattern, name, MAX_SECONDS)
    except (TimeoutError, ValueError):
        raise GiveUp(f"the pattern {pattern[:60]!r} cannot be matched with a name") from None


def check_names(flat: Flat, names: Sized) -> None:
    """Raise GiveUp if there are too many names to match all patterns against them."""
    if len(flat.get("patternProperties", ())) * len(names) > MAX_SEARCHES:
        raise GiveUp("too many patterns and names")


def _objects(a: Flat, b: Flat) -> Flat:
    names = list(dict.fromkeys([*a.get("properties", {}), *b.get("properties", {})]))
    merged: Flat = {}
    for flat in (a, b):
        check_names(flat, names)
    if names:
        merged["properties"] = {
            name: intersect(property_schema(a, name), property_schema(b, name)) for name in names
        }
    patterns = _patterns(a, b)
    if patterns:
        merged["patternProperties"] = patterns
    if "additionalProperties" in a or "additionalProperties" in b:
        others = [flat.get("additionalProperties", True) for flat in (a, b)]
        merged["additionalProperties"] = intersect(*others)
    return merged


def _patterns(a: Flat, b: Flat) -> dict[str, Schema]:
    """Return the patterns of both; a name that matches one also has to satisfy the rest of the other."""
    ours, theirs = a.get("patternProperties", {}), b.get("patternProperties", {})
    others = {"a": a.get("additionalProperties", True), "b": b.get("additionalProperties", True)}
    if ours and theirs and ours.keys() != theirs.keys() and others != {"a": True, "b": True}:
        raise GiveUp("two sets of patternProperties, and additionalProperties")
    if ours.keys() == theirs.keys():
        return {pattern: intersect(ours[pattern], theirs[pattern]) for pattern in ours}
    if ours and theirs:
        return {key: intersect(ours.get(key, True), theirs.get(key, True)) for key in {**ours, **theirs}}
    other, named = (others["b"], b) if ours else (others["a"], a)
    names = named.get("properties", {})
    if other is not True and any(matches(pattern, name) for pattern in ours or theirs for name in names):
        raise GiveUp("a name that one has in properties, the other in patternProperties")
    return {pattern: intersect(below, other) for pattern, below in (ours or theirs).items()}


def _arrays(a: Flat, b: Flat) -> Flat:
    heads = a.get("prefixItems", []), b.get("prefixItems", [])
    tails = a.get("items", True), b.get("items", True)
    length = max(map(len, heads))
    full = [[*head, *[tail] * (length - len(head))] for head, tail in zip(heads, tails, strict=True)]
    merged: Flat = {"prefixItems": [intersect(*pair) for pair in zip(*full, strict=True)]} if length else {}
    if "items" in a or "items" in b:
        merged["items"] = intersect(*tails)
    return merged


def _types(a: list[str], b: list[str]) -> list[str]:
    parts = {"number": ("integer", FRACTION)}
    there = {part for kind in b for part in parts.get(kind, (kind,))}
    kinds = [part for kind in a for part in parts.get(kind, (kind,)) if part in there]
    if "integer" in kinds and FRACTION in kinds:
        kinds = ["number" if kind == "integer" else kind for kind in kinds if kind != FRACTION]
    return list(dict.fromkeys(kinds))


def _multiple(a: float, b: float) -> float:
    x, y = Fraction(str(a)), Fraction(str(b))
    size = x.denominator * y.denominator
    multiple = Fraction(lcm(x.numerator * y.denominator, y.numerator * x.denominator), size)
    return int(multiple) if multiple.denominator == 1 else float(multiple)


def _common(a: list[Any], b: list[Any]) -> list[Any]:
    there = set(map(canonical, b))
    return [value for value in a if canonical(value) in there]


def _same(a: Any, b: Any) -> Any:
    if json.dumps(a, sort_keys=True, default=list) == json.dumps(b, sort_keys=True, default=list):
        return a
    raise GiveUp("two values of one keyword that no single value expresses")


def _text(a: str, b: str) -> Any:
    return a if a == b else _NOTHING


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_LARGER, max),
    **dict.fromkeys(_SMALLER, min),
    "type": _types,
    "enum": _common,
    "multipleOf": _multiple,
    "required": lambda a, b: list(dict.fromkeys([*a, *b])),
    "pattern": _text,
    "format": _text,
    "uniqueItems": lambda a, b: a or b,
    "propertyNames": intersect,
    ALSO: lambda a, b: [*a, *b],
}

Grade = Literal["exact", "loose", "tight", "refused", "unknown"]


@dataclass(frozen=True)
class Support:
    """The grades of one back end, and its version."""

    version: str
    shapes: dict[str, Grade]

    def grade(self, shape: str) -> Grade:
        """Return the grade of a shape.

        exact; loose: invalid values pass; tight: some valid values are rejected; refused: the back end does
        not compile the shape; unknown: the shape was not probed.
        """
        if shape.startswith("?"):
            return "unknown"
        if shape in self.shapes:
            return self.shapes[shape]
        return "refused" if keyword_of(shape) in self._unknown else "unknown"

    @cached_property
    def _unknown(self) -> frozenset[str]:
        """Keywords that the back end rejects in every form."""
        grades_of: dict[str, set[str]] = {}
        for shape, grade in self.shapes.items():
            if "+" not in shape:
                grades_of.setdefault(keyword_of(shape), set()).add(grade)
        return frozenset(keyword for keyword, grades in grades_of.items() if grades == {"refused"})


def keyword_of(shape: str) -> str:
    return re.split("[:+]", shape)[0]


SUPPORT: dict[str, Support] = {
    name: Support(**entry)
    for name, entry in json.loads(Path(__file__).with_name("support.json").read_bytes()).items()
}
