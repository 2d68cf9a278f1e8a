"""Audit: grades of the keywords of a schema for a back end, findings from them, and removal of keywords
that it rejects. The grades come from probes of the installed back ends (support.json), never from their
documentation; a keyword counts as enforced only if a probe has shown that its shape is exact. A shape,
the key of the support table, is a keyword with everything known to change how a back end treats it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from gencli.structured.ecma_regex import may_match
from gencli.structured.flat_schema import ALSO, AT, SUPPORT, Grade, Schema
from gencli.structured.json_schema import ANNOTATIONS, APPLICATORS, GROUPS, declared_types, walk
from gencli.structured.output_spec import UNIQUE_NAMES, Audit, Enforcement, KeywordFinding, Plan
from gencli.structured.pattern_sets import pattern_forms
from gencli.structured.rewrite_strings import are_apart
from gencli.structured.schema_check import is_comment, likely_keywords
from gencli.structured.schema_errors import NEVER, Deadline, child, descend
from gencli.structured.schema_validator import FORMATS
from processors.grammar.json_grammars import MARK
from processors.request_values import keys_of

_WORST: tuple[Grade, ...] = ("refused", "unknown", "loose", "tight", "exact")
_VERDICTS: dict[Grade, tuple[Enforcement, str]] = {
    "exact": ("mask", ""),
    "tight": ("mask", "the mask also refuses some valid values"),
    "loose": ("check", "the mask lets some invalid values through"),
    "refused": ("check", "no grammar can be made of it"),
    "unknown": ("unknown", "not probed in this combination"),
}

_ELSEWHERE = frozenset((*APPLICATORS, "enum", "const"))
_NAMING = ("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "type")


@dataclass(frozen=True, slots=True)
class Graded:
    """A keyword at one place of a schema; `grade` is the worst grade of its shapes."""

    pointer: str
    keyword: str
    grade: Grade
    shape: str


def graded(schema: Any, backend: str, deadline: Deadline = NEVER) -> Iterator[Graded]:
    """Yield each keyword that can reject a value, with its grade. Raises OutOfTime."""
    support = SUPPORT[backend]
    for pointer, below in walk(schema):
        worst: dict[str, Graded] = {}
        for keyword, shape in deadline.watch(shapes_of(below)):
            candidate = Graded(child(pointer, keyword), keyword, support.grade(shape), shape)
            worst[keyword] = min(
                worst.get(keyword, candidate), candidate, key=lambda each: _WORST.index(each.grade)
            )
        yield from worst.values()


def audit(schema: Any, backend: str) -> Audit:
    return Audit(backend, tuple(finding(keyword) for keyword in graded(schema, backend)))


def finding(keyword: Graded) -> KeywordFinding:
    """Return the finding for a graded keyword."""
    if keyword.shape.startswith("?"):
        kind = "format" if keyword.keyword == "format" else "keyword"
        near = "".join(f" (nearly {name})" for name in likely_keywords(keyword.keyword)[:1])
        reason = f"not a {kind} of JSON Schema{near}: nothing checks it"
        return KeywordFinding(keyword.pointer, keyword.keyword, "unknown", reason)
    verdict, reason = _VERDICTS[keyword.grade]
    shape = f" ({keyword.shape})" if reason and keyword.shape != keyword.keyword else ""
    return KeywordFinding(keyword.pointer, keyword.keyword, verdict, reason + shape)


def free_names(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield each object of a schema that may have arbitrary property names.

    Each is a pair: the object's JSON pointer, and the keyword that leaves the names free, or "".
    """
    for pointer, below in walk(schema):
        named = {} if below is True else below
        if isinstance(named, dict) and _is_free(named):
            yield pointer, next((key for key in _NAMING if named.get(key, False) is not False), "")


def _is_free(schema: dict[str, Any]) -> bool:
    """Whether a value of the schema may be, or contain, an object with arbitrary property names."""
    types = declared_types(schema) or {"object", "array"}
    if not schema.keys() & {"type", *GROUPS["object"], *GROUPS["array"]} and schema.keys() & _ELSEWHERE:
        return False
    if "array" in types and "items" not in schema and schema.get("maxItems", 1) > 0:
        return True
    if "object" not in types or schema.get("maxProperties", 2) < 2:
        return False
    others = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    return bool(schema.get("patternProperties")) or others is not False


def duplicate_name_finding(pointer: str, *, is_typed: bool) -> KeywordFinding:
    """Return the finding about a value with free names; `is_typed`: a keyword names its type or its names."""
    where = "" if is_typed else " in values of any type"
    return KeywordFinding(pointer, UNIQUE_NAMES, "check", f"the mask allows a free name twice{where}")


def without_formats(plan: Plan) -> Plan:
    """Return the plan for a final check that ignores `format`.

    A format that the mask does not enforce is then not enforced at all.
    """

    def unchecked(entry: KeywordFinding) -> KeywordFinding:
        if (entry.keyword, entry.verdict) != ("format", "check"):
            return entry
        return replace(entry, verdict="unknown", reason=f"{entry.reason}; checked with `formats` only")

    return replace(plan, variants=tuple(variant.changed(unchecked) for variant in plan.variants))


def audit_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON: the chosen back end, the reason, and the findings of each variant."""
    return {
        "backend": plan.variants[0].audit.backend,
        "reason": plan.reason,
        "exact": plan.variants[0].audit.is_exact,
        "variants": [
            {
                "backend": variant.audit.backend,
                "exact": variant.audit.is_exact,
                "findings": list(map(asdict, variant.audit.findings)),
            }
            for variant in plan.variants
        ],
    }


Spelled = tuple[Any, dict[str, frozenset[str]]]  # a plain schema, and origins by pointer

# The order in which the keywords of one place are removed.
_ORDER = (
    "unevaluatedProperties unevaluatedItems uniqueItems contains minContains maxContains dependencies"
    " dependentRequired dependentSchemas propertyNames minProperties maxProperties if then else not"
    " $dynamicRef $recursiveRef patternProperties multipleOf format pattern minLength maxLength"
    " additionalItems allOf oneOf anyOf".split()
)
_TOGETHER = {"if": ("if", "then", "else"), "contains": ("contains", "minContains", "maxContains")}


def split_origins(schema: Schema) -> Spelled:
    """Return the plain schema without origins, and its origins by JSON pointer."""
    at: dict[str, frozenset[str]] = {}
    return _split_origins(schema, "", at), at


def _split_origins(value: Any, pointer: str, at: dict[str, frozenset[str]]) -> Any:
    if isinstance(value, list):
        return [_split_origins(item, child(pointer, index), at) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    for keyword, pointers in value.get(AT, {}).items():
        at[child(pointer, keyword)] = pointers
    kept = {key: below for key, below in value.items() if key not in (AT, ALSO)}
    plain = {key: _split_origins(below, child(pointer, key), at) for key, below in kept.items()}
    if value.get(ALSO):
        also = [{"type": "string", **flat} for flat in value[ALSO]]
        plain["allOf"] = _split_origins(also, child(pointer, "allOf"), at)
        at[child(pointer, "allOf")] = frozenset()
    return plain


def relax(schema: Any, backend: str, deadline: Deadline = NEVER) -> tuple[Any, list[Graded], list[Graded]]:
    """Return the schema without rejected keywords, the grades of the others, and the removed keywords."""
    gone: list[Graded] = []
    while refused := _refused(grades := list(graded(schema, backend, deadline))):
        schema = schema if gone else json.loads(json.dumps(schema))
        for keyword in refused:
            _remove(schema, keyword)
        gone.extend(refused)
    return schema, grades, gone


def _refused(grades: list[Graded]) -> list[Graded]:
    """Return for each place the one rejected keyword that is removed first."""

    def rank(keyword: Graded) -> int:
        return _ORDER.index(keyword.keyword) if keyword.keyword in _ORDER else len(_ORDER)

    first: dict[str, Graded] = {}
    for keyword in grades:
        if keyword.grade == "refused" or keyword.shape == "?format":
            parent = keyword.pointer.rpartition("/")[0]
            first[parent] = min(first.get(parent, keyword), keyword, key=rank)
    return [each for parent, each in first.items() if not any(outer in first for outer in above(parent))]


def above(pointer: str) -> Iterator[str]:
    """Yield the pointers of the places that contain a place, nearest first."""
    while pointer:
        pointer = pointer.rpartition("/")[0]
        yield pointer


def _remove(schema: Any, refused: Graded) -> None:
    *way, keyword = keys_of(refused.pointer)
    node = schema
    for key in way:
        node = descend(node, key)
    if refused.shape.startswith("properties:false"):
        node["properties"] = {name: below for name, below in node["properties"].items() if below is not False}
    elif keyword == "oneOf" and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
    else:
        for name in _TOGETHER.get(keyword, (keyword,)):
            node.pop(name, None)


_FEW_PATTERNS = 8  # more patterns are not compared pairwise
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_GROUP = {keyword: group for group, keywords in GROUPS.items() for keyword in keywords}
_CATEGORY = {**_GROUP, **dict.fromkeys(APPLICATORS, "applicator")}
_CATEGORY |= {"enum": "values", "const": "values", "type": "type"}


def shapes_of(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield (keyword, shape) for the keywords directly in a schema; a keyword may have several shapes.

    A shape that begins with "?" belongs to a keyword outside JSON Schema.
    """
    if not isinstance(schema, dict):
        return
    for keyword in schema:
        if keyword == "format" and schema["format"] not in FORMATS:
            yield keyword, "?format"
        elif keyword in _GROUP:
            yield from ((keyword, shape) for shape in _grouped(schema, keyword))
        elif keyword in APPLICATORS:
            yield from ((keyword, shape) for shape in _applied(schema, keyword))
        elif keyword in ("enum", "const"):
            yield from ((keyword, shape) for shape in _listed(schema, keyword))
        elif keyword == "type":
            yield keyword, "type" if isinstance(schema["type"], str) else "type:list"
        elif keyword not in ANNOTATIONS and not is_comment(keyword):
            yield keyword, "?" + keyword


def _grouped(schema: dict[str, Any], keyword: str) -> Iterator[str]:
    group, types = _GROUP[keyword], declared_types(schema)
    if types and not types & ({"integer", "number"} if group == "number" else {group}):
        yield f"{keyword}:foreign"
        return
    if MARK in schema:
        yield from _marked(schema, keyword)
        return
    if keyword[3:] in ("Length", "Items", "Properties", "Contains") and isinstance(schema[keyword], float):
        yield keyword + ":decimal"
    suffix = ":union" if len(types) > 1 else "" if types else ":untyped"
    for form in _FORMS[group](schema, keyword):
        yield keyword + form + suffix
    for other in GROUPS[group]:
        if other != keyword and other in schema:
            yield "+".join(sorted((keyword, other)))


def _marked(schema: dict[str, Any], keyword: str) -> Iterator[str]:
    """Yield the shapes of a keyword in an object or array marked for Lark."""
    yield f"{keyword}:{schema[MARK]}"
    for other in GROUPS[_GROUP[keyword]]:
        if other != keyword and other in schema:
            yield "+".join(sorted((keyword, other))) + f":{schema[MARK]}"
    if keyword == "patternProperties":
        patterns = schema[keyword]
        yield from (f"pattern{form}" for pattern in patterns for form in pattern_forms(pattern))
        if (
            schema.get("additionalProperties") is not False
            or not are_apart(tuple(patterns))
            or may_match(patterns, schema.get("properties", {}))
        ):
            yield f"patternProperties:{schema[MARK]}:overlap"


def _string_forms(schema: dict[str, Any], keyword: str) -> list[str]:
    if keyword == "pattern":
        return pattern_forms(schema[keyword])
    return [f":{schema[keyword]}" if keyword == "format" else ""]


def _number_forms(schema: dict[str, Any], keyword: str) -> list[str]:
    value = schema[keyword]
    kind = ":integer" if declared_types(schema) == {"integer"} else ""
    if isinstance(value, bool):
        return [":boolean"]
    if keyword != "multipleOf" and (abs(value) >= 2**53 or "e" in repr(value)):
        return [f"{kind}:huge"]
    is_large = keyword == "multipleOf" and value > 1024
    return [f"{kind}{':fraction' if value != int(value) else ':large' if is_large else ''}"]


def _array_forms(schema: dict[str, Any], keyword: str) -> list[str]:
    value = schema[keyword]
    if keyword == "items" and isinstance(value, list):
        return [":list"]
    if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
        return [":alone"]
    return [":false" if keyword in ("items", "additionalItems", "uniqueItems") and value is False else ""]


def _object_forms(schema: dict[str, Any], keyword: str) -> Iterator[str]:
    value = schema[keyword]
    names = schema.get("properties", {})
    if keyword == "properties":
        yield from [":escaped"] * any(map(_ESCAPED.search, value))
        yield ":false" if any(below is False or below == {"not": {}} for below in value.values()) else ""
    elif keyword == "required":
        yield ":undeclared" if any(name not in names for name in value) else ""
    elif keyword == "additionalProperties":
        yield f":{json.dumps(value)}" if isinstance(value, bool) else ":schema"
    elif keyword == "patternProperties":
        yield from sorted({form for pattern in value for form in pattern_forms(pattern)}) or [""]
        yield from [":false"] * (False in value.values())
        yield from [":open"] * (schema.get("additionalProperties") is not False)
        if len(value) > 1:
            is_few = len(value) <= _FEW_PATTERNS
            yield ":apart" if _start_apart(value) or (is_few and are_apart(tuple(value))) else ":several"
        yield from [":overlap"] * may_match(value, names)
    elif keyword == "propertyNames":
        keys = "+".join(sorted(set(value) - ANNOTATIONS - {"type"})) if isinstance(value, dict) else "false"
        yield f":{keys}"
    elif keyword in ("minProperties", "maxProperties"):
        yield ":optional" if set(names) - set(schema.get("required", ())) else ""
    else:
        yield ""


def _start_apart(patterns: Iterable[str]) -> bool:  # because their first characters differ
    starts = [match[1] if (match := re.match(r"\^\\?([A-Za-z0-9_$/-])", text)) else "" for text in patterns]
    is_clear = all(starts) and not any("|" in text or re.match(r"\^\\?.[*?{]", text) for text in patterns)
    is_plain = not any(re.match(r"\^\\[a-z]", text) for text in patterns)
    return is_clear and is_plain and len(set(starts)) == len(starts)


_FORMS = {"string": _string_forms, "number": _number_forms, "array": _array_forms, "object": _object_forms}


def _listed(schema: dict[str, Any], keyword: str) -> Iterator[str]:
    values = schema["enum"] if keyword == "enum" else [schema["const"]]
    yield from (f"{keyword}:{kind}" for kind in sorted(set(map(_kind, values)) or {"empty"}))
    if {other for other in schema if other in _GROUP or other in ("enum", "const")} - {keyword}:
        yield f"{keyword}+keywords"
    types = declared_types(schema)
    if types and any(not is_of(value, types) for value in values):
        yield f"{keyword}+type"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if abs(value) < 2**53 else "number:huge"
    if isinstance(value, float):
        return "number:huge" if "e" in repr(value) or str(value) == "-0.0" else "number"
    if isinstance(value, str):
        return "string:escaped" if _ESCAPED.search(value) else "string"
    inner = {_kind(item) for item in (value.values() if isinstance(value, dict) else value)}
    return ("object" if isinstance(value, dict) else "array") + (":huge" if "number:huge" in inner else "")


def is_of(value: Any, types: frozenset[str]) -> bool:
    """Whether a value has one of the types."""
    kind = _kind(value).partition(":")[0]
    if kind == "integer":
        return bool(types & {"integer", "number"})
    return kind in types or (kind == "number" and "integer" in types and value == int(value))


def _applied(schema: dict[str, Any], keyword: str) -> Iterator[str]:
    value = schema[keyword]
    if keyword == "$ref":
        is_pointer, is_local = value.startswith("#/"), value.startswith("#")
        yield (
            "$ref:root" if value == "#" else f"$ref{'' if is_pointer else ':anchor' if is_local else ':uri'}"
        )
    elif keyword == "allOf":
        yield "allOf:one" if len(value) == 1 else "allOf"
        objects = [branch for branch in value if isinstance(branch, dict)]
        if any(branch.get("additionalProperties", True) is not True for branch in objects):
            yield "allOf:closed"
    elif keyword == "oneOf":
        yield f"oneOf:{_branches(value)}"
    elif keyword in ("then", "else") and "if" not in schema:
        return
    else:
        yield keyword
    for other in sorted({_CATEGORY[name] for name in schema if name != keyword and name in _CATEGORY}):
        if (keyword, other) not in (("then", "applicator"), ("else", "applicator"), ("if", "applicator")):
            yield f"{keyword}+{other}"


def _branches(branches: list[Any]) -> str:
    """Return the property by which the branches of a oneOf differ without a search."""
    declared = [declared_types(branch) if isinstance(branch, dict) else frozenset() for branch in branches]
    kinds = [{"number" if name == "integer" else name for name in types} for types in declared]
    if all(kinds) and sum(map(len, kinds)) == len(set().union(*kinds)):
        return "types"
    if all(isinstance(branch, dict) and ("const" in branch or "enum" in branch) for branch in branches):
        return "values"
    return "discriminator" if _has_discriminator(branches) else "other"


def _has_discriminator(branches: list[Any]) -> bool:
    """Whether all branches require one property with text values that no two branches share."""
    if not all(isinstance(branch, dict) and declared_types(branch) == {"object"} for branch in branches):
        return False
    for name in branches[0].get("required", ()) if branches else ():
        texts = [_texts(branch, name) for branch in branches]
        if all(texts) and sum(map(len, texts)) == len(frozenset().union(*texts)):
            return True
    return False


def _texts(branch: dict[str, Any], name: str) -> frozenset[str]:
    below = branch.get("properties", {}).get(name)
    if name not in branch.get("required", ()) or not isinstance(below, dict):
        return frozenset()
    values = [below["const"]] if "const" in below else below.get("enum", [])
    return frozenset(values) if all(isinstance(value, str) for value in values) else frozenset()
