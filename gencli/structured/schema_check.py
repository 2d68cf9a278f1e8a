"""The check of a schema before anything is loaded: values of keywords, misspelled keywords, and which
places of a document a schema can reach. Values are checked against a draft's meta-schema one keyword at
a time, so the cost does not grow with depth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice, product
from typing import Any

from gencli.json_text import DOCUMENT
from gencli.structured.contradictions import find_contradictions
from gencli.structured.ecma_regex import check_pattern
from gencli.structured.json_schema import (
    DRAFTS,
    SINGLE,
    Draft,
    References,
    draft_of,
    find_cycle,
    longest_chain,
    refs_in,
    walk,
    with_published,
)
from gencli.structured.schema_errors import NEVER, Deadline, SchemaError, child, message, shortened, shown
from gencli.structured.schema_validator import unique_items
from processors.errors import edit_distance
from processors.request_values import ANY_KEY, keys_of

MAX_BYTES = 4 * 1024 * 1024
MAX_SUBSCHEMAS = 20_000
MAX_CHAIN = 200  # nested subschemas for one value; the final check fails at about 300
MAX_FAULTS = 5  # faults in one message
MAX_PATTERNS = 300_000  # characters of all patterns, plus 100 for each pattern

_Fault = tuple[str, str]


def check_schema(schema: Any, deadline: Deadline = NEVER) -> tuple[str, ...]:
    """Return notices about a schema that can be used; raise SchemaError with the first few faults otherwise.

    Checked are size and depth, the meta-schema of the declared draft, misspelled keywords that would change
    which values are valid, patterns, references, and contradictions. The notices name optional parts that no
    value satisfies, and drafts that are declared in subschemas. Raises OutOfTime.
    """
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"A schema is an object, true or false, not {json.dumps(schema)[:40]}.")
    layer, depth = [schema], 0
    while layer := [below for value in layer if isinstance(value, dict | list) for below in _parts(value)]:
        depth += 1
        if depth > DOCUMENT.max_depth:
            raise SchemaError(f"The schema is nested more than {DOCUMENT.max_depth} deep.")
    schema = with_published(schema)
    check_size(len(json.dumps(schema)))
    if any(True for _ in islice(walk(schema), MAX_SUBSCHEMAS, None)):
        raise SchemaError(f"The schema has more than {MAX_SUBSCHEMAS} schemas in it, which is the limit.")
    draft = draft_of(schema)
    checks = _written(schema, draft, deadline), _patterns(schema, deadline), _referring(schema, deadline)
    for faults in checks:
        _refuse(tuple(islice(faults, MAX_FAULTS + 1)))
    fatal, optional = find_contradictions(schema, MAX_FAULTS + 1, deadline)
    _refuse(fatal)
    inner_drafts = _inner_drafts(schema, draft)
    remarks = {
        "Some parts of the schema are left out: nothing satisfies them.": optional,
        f"All of the schema is read as draft {draft.name}.": tuple(islice(inner_drafts, MAX_FAULTS + 1)),
    }
    return tuple(_listing(heading, faults) for heading, faults in remarks.items() if faults)


def _parts(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def check_size(num_bytes: int) -> None:
    """Raise SchemaError if a schema has more than MAX_BYTES bytes."""
    if num_bytes > MAX_BYTES:
        raise SchemaError(f"The schema has {num_bytes} bytes, but the limit is {MAX_BYTES}.")


def _written(root: Any, draft: Draft, deadline: Deadline) -> Iterator[_Fault]:
    """Yield the faults of each subschema on its own."""
    for pointer, schema in deadline.watch(walk(root)):
        if not isinstance(schema, dict):
            continue
        yield from ((pointer + below, text) for below, text in meta_faults(schema, draft))
        for keyword, value in deadline.watch(schema.items()):
            if (near := misspelled(keyword, value, draft)) is not None:
                typo = f"{keyword!r} is no keyword; {near!r} is, and it would change what the schema accepts"
                yield child(pointer, keyword), f"{typo}. Correct it, or name a remark 'x-{keyword}'"
        if "$schema" in schema and (fault := _of_other_draft(schema, draft)):
            yield child(pointer, "$schema"), fault


def _of_other_draft(schema: dict[str, Any], draft: Draft) -> str:
    """Return the reason why a subschema's draft cannot be used inside `draft`; "" if it can."""
    try:
        inner = draft_of(schema)
    except SchemaError:
        return "it is not a known draft"
    is_newer = DRAFTS.index(inner) < DRAFTS.index(draft)
    return f"it is a newer draft than the whole schema, which is {draft.name}" if is_newer else ""


def _patterns(root: Any, deadline: Deadline) -> Iterator[_Fault]:
    cost = 0
    schemas = ((pointer, schema) for pointer, schema in walk(root) if isinstance(schema, dict))
    for pointer, pattern in deadline.watch(pattern for here in schemas for pattern in _patterns_in(*here)):
        cost += len(pattern) + 100
        if cost > MAX_PATTERNS:
            yield pointer, f"the schema has too many patterns: the limit is {MAX_PATTERNS} characters of them"
            return
        try:
            check_pattern(pattern)
        except ValueError as error:
            yield pointer, f"the pattern {pattern[:60]!r} is no regular expression: {error}"


def _patterns_in(pointer: str, schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "pattern" in schema:
        yield child(pointer, "pattern"), schema["pattern"]
    for key in schema.get("patternProperties", ()):
        yield child(pointer, "patternProperties", key), key


def _referring(root: Any, deadline: Deadline) -> Iterator[_Fault]:
    references = References(root)
    is_sound = True
    for pointer, schema in deadline.watch(walk(root)):
        for _, ref in refs_in(schema):
            try:
                references.resolve(ref, pointer)
            except SchemaError as error:
                is_sound = False
                yield error.pointer, error.message.removeprefix(f"{error.pointer}: ").removesuffix(".")
    if not is_sound:
        return
    if (cycle := find_cycle(root, deadline)) is not None:
        yield cycle, "its references lead back to it for the same value"
        return
    depth, pointer = longest_chain(root, deadline)
    if depth > MAX_CHAIN:
        fault = f"{depth} schemas apply to one value here, each inside the one before"
        yield pointer, f"{fault}; the limit is {MAX_CHAIN}, because no document could be checked"


def _inner_drafts(root: Any, draft: Draft) -> Iterator[_Fault]:
    """Yield the places of subschemas that declare a draft."""
    for pointer, schema in walk(root):
        if pointer and isinstance(schema, dict) and "$schema" in schema:
            inner = draft_of(schema)
            remark = f"draft {inner.name} is declared here{' again' * (inner == draft)}, which has no effect"
            yield child(pointer, "$schema"), remark


def _refuse(faults: tuple[_Fault, ...]) -> None:
    if faults:
        raise SchemaError(_listing("The schema cannot be used.", faults), pointer=faults[0][0])


def _listing(heading: str, faults: tuple[_Fault, ...]) -> str:
    lines = [heading, *(f"{shown(pointer)}: {text}." for pointer, text in faults[:MAX_FAULTS])]
    return "\n  ".join(lines + ["There is more."] * (len(faults) > MAX_FAULTS))


_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MAX_KEPT = 100  # characters of a value up to which its result is cached


def meta_faults(schema: dict[str, Any], draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield (relative JSON pointer, fault) of the keywords of one schema, without its subschemas."""
    described = draft.described()
    for keyword, value in schema.items():
        if keyword not in described:
            continue
        is_small = isinstance(value, int) or (isinstance(value, str) and len(value) < _MAX_KEPT)
        yield from _small(draft, keyword, repr(value), value) if is_small else _faults(draft, keyword, value)
    for bound in ("minimum", "maximum") if draft.name == "4" else ():
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in schema and bound not in schema:
            yield child("", exclusive), f"it needs {bound}, which it modifies"


@lru_cache(maxsize=4096)
def _small(draft: Draft, keyword: str, written: str, value: Any) -> list[tuple[str, str]]:
    return _faults(draft, keyword, value)  # `written` is in the cache key because 1 == True


def is_value_of(keyword: str, value: Any, draft: Draft) -> bool:
    """Whether the draft's meta-schema allows the value for this keyword."""
    return not _faults(draft, keyword, value)


def _faults(draft: Draft, keyword: str, value: Any) -> list[tuple[str, str]]:
    errors = list(_judge(draft, keyword).iter_errors(value))
    if keyword == "type" and errors:
        return [("/type", f"{shortened(value)} is no type; there are {', '.join(_TYPES)}, and lists of them")]
    return [(child("", keyword, *error.absolute_path), message(error)) for error in errors]


@cache
def _judge(draft: Draft, keyword: str) -> Any:
    from jsonschema.validators import extend
    from referencing import Registry

    stock = draft.validator()
    kinds = ["object"] if draft.name == "4" else ["object", "boolean"]

    def schema_below(validator: Any, ref: Any, value: Any, schema: Any) -> Any:
        return stock.VALIDATORS["type"](validator, kinds, value, schema)

    def reference(validator: Any, ref: Any, value: Any, schema: Any) -> Any:
        judge = schema_below if ref == "#" else stock.VALIDATORS["$ref"]
        return judge(validator, ref, value, schema)

    ours = {"$ref": reference, **dict.fromkeys(("$dynamicRef", "$recursiveRef"), schema_below)}
    judge = extend(stock, {**ours, "uniqueItems": unique_items})  # type: ignore[no-untyped-call]
    return judge({"$ref": draft.described()[keyword]}, registry=Registry())


# Annotations of other tools, which are not misspellings.
_REMARKS = frozenset(
    "$comment defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames"
    " errorMessage example externalDocs markdownDescription markdownEnumDescriptions meta note notes nullable"
    " optional options propertyOrder tags value values xml".split()
)
_MIN_LENGTH = 4  # shortest keyword that a word with one letter more or less may mean
# Values with which a keyword allows every value.
_IDLE: dict[str, Any] = {
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), 0),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems"), False),
    **{key: {} for key in ("dependentRequired", "dependentSchemas", "patternProperties", "properties")},
    **{key: [] for key in ("prefixItems", "required")},
}
_APPLY_ONE = SINGLE - {"not"}


def is_comment(keyword: str) -> bool:
    """Whether a name is reserved for comments: x-NAME, X-NAME, _NAME."""
    return keyword.startswith(("x-", "X-", "_"))


def misspelled(word: str, value: Any, draft: Draft) -> str | None:
    """Return the keyword that an unknown word probably means, if it would change which values are valid.

    The word has edit distance 1 from the keyword. The draft's meta-schema allows its value for the keyword,
    and with it the keyword rejects some value.
    """
    for keyword in likely_keywords(word):
        idle = _IDLE.get(keyword)
        is_idle = type(value) is type(idle) and value == idle  # because 0 == False
        if keyword in _APPLY_ONE:
            is_idle = value is True or value == {}
        is_judged = keyword in draft.judged() & draft.described().keys()
        if is_judged and is_value_of(keyword, value, draft) and not is_idle:
            return keyword
    return None


@lru_cache(maxsize=4096)
def likely_keywords(word: str) -> tuple[str, ...]:
    """Return the keywords at edit distance 1 from a word, shortest first.

    Empty for a keyword, and for a known annotation of another tool.
    """
    keywords, by_form = _keywords()
    is_long = len(word) > max(map(len, keywords)) + 1
    if is_long or word in keywords or word in _REMARKS or is_comment(word):
        return ()
    near = {keyword for form in _forms(word) for keyword in by_form.get(form, ())}
    near = {keyword for keyword in near if _is_near(word, keyword) or _is_near(word, _plural(keyword))}
    return tuple(sorted(near, key=lambda keyword: (len(keyword), keyword)))


@cache
def _keywords() -> tuple[frozenset[str], dict[str, list[str]]]:
    """Return the keywords of all drafts, and these by form, so that a word is not compared with each."""
    keywords = frozenset(keyword for draft in DRAFTS for keyword in draft.described())
    by_form: dict[str, list[str]] = {}
    for keyword in keywords:
        for form in _forms(keyword) | _forms(_plural(keyword)) | {keyword.removeprefix("$")}:
            by_form.setdefault(form, []).append(keyword)
    return keywords, by_form


def _forms(word: str) -> set[str]:
    # The word, the word in lower case, and without one of its letters. Words at edit distance 1 share a form.
    return {word, word.lower(), *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _plural(keyword: str) -> str:  # with the common misspelling of -ies: propertys
    return keyword.removesuffix("ies") + "ys" if keyword.endswith("ies") else keyword


def _is_near(word: str, keyword: str) -> bool:
    """Whether a word differs by one letter, by swapped letters, by case, or by a missing dollar sign."""
    if word.lower() == keyword.lower() or word == keyword.removeprefix("$"):
        return True
    is_swapped = sorted(word) == sorted(keyword)
    return edit_distance(word, keyword, 1) == 1 and (is_swapped or len(keyword) >= _MIN_LENGTH)


_MOST_PLACES = 256  # limit of alternatives followed; beyond it a path counts as reached
_NAMED = 12  # number of names listed in an error
_OPEN = frozenset("if then else dependencies dependentSchemas unevaluatedProperties unevaluatedItems".split())
_Value = tuple[Any, ...]  # the schemas that apply to one value at once


class _Unknown(Exception):
    """Whether the place is reached cannot be decided; it counts as reached."""


def unreached(schema: Any, pointer: str, *, is_open: bool) -> tuple[str, tuple[str, ...]] | None:
    """Return the pointer at which a path leaves the schema, and the names allowed there; None if reached.

    The segment * matches any key or index. `is_open`: objects may have properties that the schema does not
    name. Conditional keywords are not followed; what they may add counts as reached.
    """
    search, here, at = _ReachSearch(schema, is_open), [(schema,)], ""
    try:
        for key in keys_of(pointer):
            flat = [schemas for value in here for schemas in search.alternatives(value)]
            below = [value for schemas in flat for value in search.below(schemas, key)]
            below = [value for value in below if search.alternatives(value)]
            if not below:
                names = dict.fromkeys(name for schemas in flat for name in _names(schemas))
                return shown(at), tuple(names)[:_NAMED]
            if len(below) > _MOST_PLACES:
                return None
            here, at = below, child(at, key)
    except (_Unknown, SchemaError):
        return None
    return None


class _ReachSearch:
    def __init__(self, root: Any, is_open: bool) -> None:
        self._references, self._is_open = References(with_published(root)), is_open

    def alternatives(self, value: _Value) -> list[tuple[Mapping[str, Any], ...]]:
        """Return sets of schemas without references and combinations; a value satisfies one of the sets."""
        sets: list[tuple[Mapping[str, Any], ...]] = [()]
        for schema in value:
            parts = list(self._expanded(schema))
            sets = [(*first, *second) for first, second in product(sets, parts)]
            if len(sets) > _MOST_PLACES:
                raise _Unknown
        return sets

    def _expanded(self, schema: Any) -> Iterator[tuple[Mapping[str, Any], ...]]:
        if not isinstance(schema, Mapping):
            if schema is not False:
                yield ()
            return
        if _OPEN & schema.keys():
            raise _Unknown
        all_of = [*schema.get("allOf", ()), *(self._references.resolve(ref)[1] for _, ref in refs_in(schema))]
        for inherited in self.alternatives(tuple(all_of)):
            for either in self._either(schema.get("anyOf")):
                for other in self._either(schema.get("oneOf")):
                    yield (schema, *inherited, *either, *other)

    def _either(self, schemas: Any) -> Iterator[tuple[Mapping[str, Any], ...]]:
        for schema in (True,) if schemas is None else schemas:
            yield from self._expanded(schema)

    def below(self, schemas: tuple[Mapping[str, Any], ...], key: str) -> Iterator[_Value]:
        """Yield the schemas of each value at the key of a value that satisfies all of `schemas`."""
        if all(_allows(schema, "object") for schema in schemas):
            names: list[str | None] = [*_names(schemas), None] if key == ANY_KEY else [key]
            yield from filter(None, (self._property(schemas, name) for name in names))
        if all(_allows(schema, "array") for schema in schemas) and (key == ANY_KEY or key.isdecimal()):
            longest = max((len(_listed(schema)) for schema in schemas), default=0)
            indices = range(longest + 1) if key == ANY_KEY else [int(key[:9])]
            yield from filter(None, (_item(schemas, index) for index in indices))

    def _property(self, schemas: Iterable[Mapping[str, Any]], name: str | None) -> _Value | None:
        """Return the schemas of a property, or of an unnamed one (None); None if it cannot exist."""
        parts, is_named, has_names = list[Any](), False, False
        for schema in schemas:
            named = schema.get("properties", {})
            patterns = schema.get("patternProperties", {})
            matching = [patterns[pattern] for pattern in patterns if name is None or _matches(pattern, name)]
            has_names |= bool(named or patterns)
            if name in named or matching:
                is_named = True
                parts += [*([named[name]] if name in named else []), *matching]
            elif "additionalProperties" in schema:
                is_named |= schema["additionalProperties"] is not False
                parts.append(schema["additionalProperties"])
        if has_names and not is_named and not self._is_open:
            return None
        return (*parts, True)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


def _names(schemas: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", {})))


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    types = schema.get("type", kind)
    if kind not in ([types] if isinstance(types, str) else types):
        return False
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values is None or any(isinstance(value, dict if kind == "object" else list) for value in values)


def _listed(schema: Mapping[str, Any]) -> list[Any]:
    items = schema.get("items")
    return items if isinstance(items, list) else list(schema.get("prefixItems", ()))


def _item(schemas: Iterable[Mapping[str, Any]], index: int) -> _Value | None:
    """Return the schemas of an item of an array; None if it cannot exist."""
    parts: list[Any] = [True]
    for schema in schemas:
        if index >= schema.get("maxItems", index + 1):
            return None
        listed, items = _listed(schema), schema.get("items", True)
        tail = schema.get("additionalItems", True) if isinstance(items, list) else items
        parts.append(listed[index] if index < len(listed) else tail)
    return tuple(parts)
