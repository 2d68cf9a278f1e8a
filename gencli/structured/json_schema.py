"""JSON Schema: drafts, groups of keywords, subschemas, references, and the published meta-schemas.

Keywords with subschemas of all drafts from 4 to 2020-12 are followed together. Nothing is fetched: the
meta-schemas come with an installed package.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from operator import itemgetter
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from gencli.structured.schema_errors import NEVER, Deadline, SchemaError, child, descend
from processors.request_values import keys_of


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft: its name, the URI in `$schema`, and its class in jsonschema."""

    name: str
    uri: str
    class_name: str

    def validator(self) -> Any:
        import jsonschema

        return getattr(jsonschema, self.class_name)

    @property
    def ignores_siblings(self) -> bool:
        """Whether keywords next to a $ref have no effect."""
        return self.name in ("4", "6", "7")

    @cache  # noqa: B019 - there are five drafts
    def described(self) -> dict[str, str]:
        """Return the keywords of the meta-schema, each with the URI of the schema of its value."""
        from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

        root = self.uri.removesuffix("#")
        parts = [part["$ref"] for part in self.validator().META_SCHEMA.get("allOf", ())]
        uris = (root, *(urljoin(root, part) for part in parts))
        named = ((uri, keyword) for uri in uris for keyword in REGISTRY.contents(uri).get("properties", {}))
        return {keyword: f"{uri}#/properties/{keyword}" for uri, keyword in named}

    @cache  # noqa: B019 - there are five drafts
    def judged(self) -> frozenset[str]:
        """Return the keywords that the final check enforces; all others are annotations in this draft."""
        keywords = frozenset(self.validator().VALIDATORS)
        if self.name == "4":
            keywords |= {"exclusiveMinimum", "exclusiveMaximum"}
        if "if" in keywords:
            keywords |= {"then", "else"}
        return keywords | ({"minContains", "maxContains"} if "dependentRequired" in keywords else set())


DRAFTS = (
    Draft("2020-12", "https://json-schema.org/draft/2020-12/schema", "Draft202012Validator"),
    Draft("2019-09", "https://json-schema.org/draft/2019-09/schema", "Draft201909Validator"),
    Draft("7", "http://json-schema.org/draft-07/schema#", "Draft7Validator"),
    Draft("6", "http://json-schema.org/draft-06/schema#", "Draft6Validator"),
    Draft("4", "http://json-schema.org/draft-04/schema#", "Draft4Validator"),
)


def draft_of(schema: Any) -> Draft:
    """Return the draft that a schema declares; the newest if it declares none. SchemaError for any other."""
    uri = schema.get("$schema", DRAFTS[0].uri) if isinstance(schema, dict) else DRAFTS[0].uri
    for draft in DRAFTS:
        if isinstance(uri, str) and _plain(uri) == _plain(draft.uri):
            return draft
    hint = "Known are " + ", ".join(draft.uri for draft in DRAFTS) + "."
    raise SchemaError(f"/$schema: {uri!r} is not a known draft.", pointer="/$schema", hint=hint)


def with_draft(schema: Any) -> Any:
    """Return the schema, which declares 2019-09 if it declared no draft and has a list as `items`.

    Generators of schemas for the older drafts leave `$schema` out. 2019-09 is the newest draft in which
    `items` may be a list.
    """
    if not isinstance(schema, dict) or "$schema" in schema:
        return schema
    inner = [here for _, here in walk(schema) if isinstance(here, dict)]
    is_old = any(isinstance(here.get("items"), list) for here in inner)
    if not is_old or any("prefixItems" in here for here in inner):
        return schema
    return {"$schema": DRAFTS[1].uri, **schema}


def _plain(uri: str) -> str:
    return uri.removesuffix("#").removeprefix("https:").removeprefix("http:")


GROUPS: dict[str, tuple[str, ...]] = {
    "string": ("format", "maxLength", "minLength", "pattern"),
    "number": ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    "array": (
        *("additionalItems", "contains", "items", "maxContains", "maxItems", "minContains", "minItems"),
        *("prefixItems", "unevaluatedItems", "uniqueItems"),
    ),
    "object": (
        *("additionalProperties", "dependencies", "dependentRequired", "dependentSchemas", "maxProperties"),
        *("minProperties", "patternProperties", "properties", "propertyNames", "required"),
        "unevaluatedProperties",
    ),
}
# Keywords whose value is one schema, a list of schemas, a map of schemas.
SINGLE = frozenset(
    "additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems"
    " unevaluatedProperties".split()
)
LISTED = frozenset("allOf anyOf items oneOf prefixItems".split())
MAPPED = frozenset("dependencies dependentSchemas patternProperties properties".split())
APPLICATORS = ("$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "else", "if", "not", "oneOf", "then")
ANNOTATIONS = frozenset(
    "$anchor $comment $defs $dynamicAnchor $id $recursiveAnchor $schema $vocabulary contentEncoding"
    " contentMediaType contentSchema default definitions deprecated description example examples id readOnly"
    " title writeOnly"
    # Annotations of other tools.
    " defaultSnippets deprecationMessage doNotSuggest enumDescriptions enumNames errorMessage externalDocs"
    " markdownDescription markdownEnumDescriptions meta note notes propertyOrder tags xml".split()
)


def declared_types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types listed by `type`; empty without `type`."""
    types = schema.get("type", [])
    return frozenset([types] if isinstance(types, str) else types)


_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_REFS = ("$ref", *_DYNAMIC)
_ONE = SINGLE | {"contentSchema"}
_MAP = MAPPED | {"$defs", "definitions"}
# Their subschemas apply to the same value as the schema that contains them.
_IN_PLACE = frozenset("allOf anyOf dependencies dependentSchemas else if not oneOf then".split())


def walk(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield each subschema with its JSON pointer, the schema itself first, in the order of the text.

    Schemas found only through a reference, as in OpenAPI's #/components, come last. Broken references are
    ignored.
    """
    references = References(schema)
    refs: deque[tuple[str, str]] = deque()
    seen: set[str] = set()
    stack = [("", schema)]
    while stack:
        pointer, here = stack.pop()
        if pointer not in seen:
            seen.add(pointer)
            yield pointer, here
            if isinstance(here, dict):
                stack.extend(reversed([(pointer + step, below) for _, step, below in _below(here)]))
                refs.extend((ref, pointer) for _, ref in refs_in(here))
        while refs and not stack:
            with suppress(SchemaError):
                stack.append(references.resolve(*refs.popleft()))


def refs_in(schema: Any) -> list[tuple[str, str]]:
    """Return (keyword, reference) of each reference directly in a schema."""
    values = [(keyword, schema.get(keyword)) for keyword in _REFS] if isinstance(schema, Mapping) else []
    return [(keyword, ref) for keyword, ref in values if isinstance(ref, str)]


def _below(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield (keyword, relative JSON pointer, subschema) for the subschemas directly below."""
    for keyword, value in schema.items():
        subschemas: list[tuple[str, Any]] = []
        if keyword in _ONE and not isinstance(value, list):
            subschemas = [(child("", keyword), value)]
        elif keyword in LISTED and isinstance(value, list):
            subschemas = [(child("", keyword, index), item) for index, item in enumerate(value)]
        elif keyword in _MAP and isinstance(value, dict):
            subschemas = [(child("", keyword, key), item) for key, item in value.items()]
        yield from ((keyword, step, below) for step, below in subschemas if isinstance(below, dict | bool))


class References:
    """The named places of a schema: $id, $anchor and $dynamicAnchor."""

    def __init__(self, root: Any) -> None:
        self._root = root
        draft = root.get("$schema") if isinstance(root, dict) else None
        self._id = "id" if isinstance(draft, str) and "draft-04" in draft else "$id"
        self._named: dict[str, str] | None = None

    def resolve(self, ref: str, base_pointer: str = "") -> tuple[str, Any]:
        """Return the pointer and the schema that `ref` leads to from `base_pointer`. Raises SchemaError."""
        pointer, base = self._resource(base_pointer)
        uri, fragment = urldefrag(ref)
        if uri:
            base = urljoin(base, uri)
            if base not in self._places():
                raise self._fault(ref, base_pointer, "is not in this schema, and nothing is fetched")
            pointer = self._places()[base]
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            return self._schema(pointer + fragment, ref, base_pointer)
        named = f"{base}#{fragment}"
        if named not in self._places():
            raise self._fault(ref, base_pointer, f"names {fragment!r}, which no $anchor has")
        return self._schema(self._places()[named], ref, base_pointer)

    def absolute(self, ref: str, base_pointer: str) -> str:
        """Return the URI of a reference, without its fragment."""
        return urljoin(self._resource(base_pointer)[1], urldefrag(ref).url)

    def is_in_root(self, pointer: str) -> bool:
        """Whether no schema at or above a place, but the root, has a URI of its own."""
        return not self._resource(pointer)[0]

    def has(self, uri: str) -> bool:
        """Whether a schema inside has this URI."""
        return uri in self._places()

    def at(self, pointer: str) -> Any:
        """Return the value at a pointer. Raises KeyError if there is none, ValueError if it is no pointer."""
        here = self._root
        for key in keys_of(pointer):
            here = descend(here, key)
        return here

    def conjuncts(self, pointer: str, schema: Mapping[str, Any]) -> list[str]:
        """Return the pointers of the schemas that hold for the same value: of references and of allOf.

        Raises SchemaError.
        """
        targets = [self.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
        return targets + pointers_in(pointer, schema, "allOf")

    def _schema(self, pointer: str, ref: str, base_pointer: str) -> tuple[str, Any]:
        try:
            here = self.at(pointer)
        except (KeyError, ValueError):
            raise self._fault(ref, base_pointer, "leads nowhere") from None
        if not isinstance(here, dict | bool):
            raise self._fault(ref, base_pointer, "leads to a value that is no schema")
        return pointer, here

    def _fault(self, ref: str, base_pointer: str, fault: str) -> SchemaError:
        keyword = next((key for key, here in refs_in(self.at(base_pointer)) if here == ref), "$ref")
        pointer = child(base_pointer, keyword)
        hint = "Put the schema it means under $defs and refer to it as #/$defs/NAME."
        return SchemaError(f"{pointer}: the reference {ref!r} {fault}.", pointer=pointer, hint=hint)

    def _resource(self, pointer: str) -> tuple[str, str]:
        """Return the pointer and URI of a place's resource: the nearest $id above it."""
        here, at, nearest, base = self._root, "", "", ""
        for key in (None, *keys_of(pointer)):
            if key is not None:
                here, at = descend(here, key), child(at, key)
            if (name := self._identifier(here)) is not None:
                nearest, base = at, urljoin(base, name)
        return nearest, base

    def _identifier(self, schema: Any) -> str | None:
        name = schema.get(self._id) if isinstance(schema, dict) else None
        return urldefrag(name).url if isinstance(name, str) and not name.startswith("#") else None

    def _places(self) -> dict[str, str]:
        if self._named is None:
            self._named = dict(self._names())
        return self._named

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield (URI, pointer) of each named place."""
        stack = [("", "", self._root)]
        while stack:
            pointer, base, here = stack.pop()
            if not isinstance(here, dict):
                continue
            if (name := self._identifier(here)) is not None:
                base = urljoin(base, name)
                yield base, pointer
            if isinstance(old := here.get(self._id), str) and old.startswith("#"):
                yield base + old, pointer
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(anchor := here.get(keyword), str):
                    yield f"{base}#{anchor}", pointer
            stack.extend((pointer + step, base, below) for _, step, below in _below(here))


def pointers_in(pointer: str, schema: Mapping[str, Any], keyword: str) -> list[str]:
    """Return the pointers of the subschemas in a list."""
    return [child(pointer, keyword, index) for index in range(len(schema.get(keyword, ())))]


def find_cycle(root: Any, deadline: Deadline = NEVER) -> str | None:
    """Return the pointer of a schema that refers to itself for the same value; None if there is none."""
    references = References(root)
    starts = (pointer for pointer, _ in walk(root))
    return find_loop(starts, lambda pointer: deadline.watch(_same_value(references, pointer)))


def longest_chain(root: Any, deadline: Deadline = NEVER) -> tuple[int, str]:
    """Return the length of the longest chain of schemas for one value, and the pointer of its first schema.

    The schema has no cycle that `find_cycle` finds.
    """
    references, depths = References(root), dict[str, int]()
    graph = {pointer: _same_value(references, pointer) for pointer, _ in deadline.watch(walk(root))}
    for pointer in TopologicalSorter(graph).static_order():
        depths[pointer] = 1 + max((depths[target] for target in graph[pointer]), default=0)
    return max(((depth, pointer) for pointer, depth in depths.items()), default=(0, ""), key=itemgetter(0))


def find_loop(starts: Iterable[str], next_of: Callable[[str], Iterable[str]]) -> str | None:
    """Return the first pointer that `next_of` leads back to, among those reached from `starts`; or None."""
    done: set[str] = set()
    for start in starts:
        path: set[str] = set()  # from `start` to the current place
        stack = [(start, False)]
        while stack:
            pointer, is_left = stack.pop()
            if is_left:
                path.remove(pointer)
                done.add(pointer)
            elif pointer in path:
                return pointer
            elif pointer not in done:
                path.add(pointer)
                stack.append((pointer, True))
                stack.extend((target, False) for target in next_of(pointer))
    return None


def _same_value(references: References, pointer: str) -> list[str]:
    schema = references.at(pointer)
    if not isinstance(schema, dict):
        return []
    targets = [references.resolve(ref, pointer)[0] for _, ref in refs_in(schema)]
    return targets + [pointer + step for keyword, step, _ in _below(schema) if keyword in _IN_PLACE]


_ANCHORS = ("$dynamicAnchor", "$recursiveAnchor")
_NAMELESS = "https://schema.invalid/"  # URI of a schema without one, which dynamic references may lead to
_UNTRUE = ("$schema", "$vocabulary")  # in a definition: the root declares the draft of the whole schema


def with_published(schema: Any) -> Any:
    """Return the schema with the published meta-schemas that it refers to, each under its URI in $defs.

    They are written in the keywords of the schema's own draft. A dynamic reference leads to the meta-schema
    that the schema refers to, or to the schema itself if it extends the meta-schema. It stays dynamic if
    another schema inside extends it. Raises SchemaError for a meta-schema of a newer draft. A schema whose
    keywords need an older draft than the newest declares it in the result.
    """
    schema = with_draft(schema)
    if not isinstance(schema, dict) or not (entries := dict(_entries(schema))):
        return schema
    draft = draft_of(schema)
    keyword = "$defs" if draft.name.startswith("20") else "definitions"
    if not isinstance(named := schema.get(keyword, {}), dict):
        return schema  # the check says so
    for uri, error in entries.items():
        if (other := _draft_at(uri)) and DRAFTS.index(other) < DRAFTS.index(draft):
            raise error
    if any(anchor in schema for anchor in _ANCHORS) and "$id" not in schema:
        schema = {"$id": _NAMELESS, **schema}
    top = _extended(schema)
    copies: dict[str, Any] = {}
    for entry in entries:
        waiting = [entry]
        while waiting:
            uri = waiting.pop()
            name = _name(uri, entry, top)
            if name not in copies:
                copies[name], others = _MetaSchemaCopy(uri, entry, top, draft).copy_and_references()
                waiting += others
    return {**schema, keyword: {**named, **copies}}


def _entries(schema: dict[str, Any]) -> Iterator[tuple[str, SchemaError]]:
    """Yield the URIs of meta-schemas that a schema refers to and lacks, each with the error to refuse it."""
    references = References(schema)
    for pointer, here in walk(schema):
        for keyword, ref in refs_in(here):
            uri = references.absolute(ref, pointer)
            if urldefrag(ref).url and not references.has(uri) and _draft_at(uri):
                fault = f"the reference {ref!r} leads to a newer draft than that of this schema"
                at = f"{pointer}/{keyword}"
                hint = "Declare that draft with `$schema`, or leave `$schema` out."
                yield uri, SchemaError(f"{at}: {fault}.", pointer=at, hint=hint)


@cache
def _draft_at(uri: str) -> Draft | None:
    written = (_published(uri) or {}).get("$schema", "").strip("#")
    return next((draft for draft in DRAFTS if draft.uri.strip("#") == written), None)


@cache
def _published(uri: str) -> dict[str, Any] | None:  # the meta-schema at a URI, with http or https
    from jsonschema_specifications import REGISTRY

    scheme, _, path = uri.partition("://")
    uris = {f"{name}://{path}" for name in ("http", "https")} if scheme in ("http", "https") else set()
    return next((REGISTRY.contents(each) for each in uris if each in REGISTRY), None)


def _extended(schema: dict[str, Any]) -> str | None:
    """Return the URI to which dynamic references lead: "" for the meta-schema that the schema refers to.

    If the schema itself extends the meta-schema, it is the schema's own. None: it depends on the value.
    """
    if not any(anchor in here for _, here in walk(schema) if isinstance(here, dict) for anchor in _ANCHORS):
        return ""
    is_top = schema.get("$dynamicAnchor") == "meta" or schema.get("$recursiveAnchor") is True
    return urldefrag(schema["$id"]).url if is_top and isinstance(schema.get("$id"), str) else None


def _name(uri: str, entry: str, top: str | None) -> str:
    # A copy has a URI for each meta-schema that is entered, or the same URI.
    return uri if uri == entry or top != "" else f"{uri}?from={entry.rpartition('/')[2]}"


class _MetaSchemaCopy:
    """A copy of the meta-schema at `uri`, reached through the one at `entry`, in the keywords of a draft."""

    def __init__(self, uri: str, entry: str, top: str | None, draft: Draft) -> None:
        self._uri, self._entry, self._top, self._draft = uri, entry, top, draft
        self._others: list[str] = []

    def copy_and_references(self) -> tuple[dict[str, Any], list[str]]:
        """Return the copy, and the URIs of the meta-schemas that it refers to."""
        published = _published(self._uri)
        assert published is not None
        identifier = "id" if self._draft.name == "4" else "$id"
        kept = {key: value for key, value in published.items() if key not in ("id", "$id", *_UNTRUE)}
        return {identifier: _name(self._uri, self._entry, self._top), **self._copied(kept)}, self._others

    def _copied(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._copied(item) for item in value]
        if not isinstance(value, dict):
            return value
        pairs = (self._pair(key, below) for key, below in self._renewed(value).items())
        return {key: below for key, below in pairs if key not in _ANCHORS or not self._is_static(below)}

    def _is_static(self, anchor: Any) -> bool:
        return self._top is not None and isinstance(anchor, str | bool)

    def _pair(self, key: str, below: Any) -> tuple[str, Any]:
        if key in _DYNAMIC and self._is_static(below):
            return "$ref", self._top or self._entry
        if key == "$ref" and isinstance(below, str):
            uri, fragment = urldefrag(urljoin(self._uri, below))
            self._others.append(uri)
            return key, f"{_name(uri, self._entry, self._top)}#{fragment}"
        return key, self._copied(below)

    def _renewed(self, here: dict[str, Any]) -> dict[str, Any]:
        """Return the schema without the keywords of draft 4 that the newer draft lacks."""
        if self._draft.name != "4" and here.get("exclusiveMinimum") is True:
            here = {**{key: below for key, below in here.items() if key != "minimum"}, "exclusiveMinimum": 0}
        names = here.get("dependencies", {}).values() if self._draft.name.startswith("20") else ()
        if names and all(isinstance(value, list) for value in names):
            here = {("dependentRequired" if key == "dependencies" else key): here[key] for key in here}
        return here
