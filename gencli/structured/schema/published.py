"""The published meta-schemas: a schema that refers to them gets them among its definitions.

They come with an installed package, so nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urldefrag, urljoin

from gencli.structured.errors import SchemaError
from gencli.structured.schema.drafts import DRAFTS, Draft, draft_of, with_draft
from gencli.structured.schema.refs import References, refs_in, walk

__all__ = ["with_published"]

_DYNAMIC = ("$dynamicRef", "$recursiveRef")
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
    place = "$defs" if draft.name.startswith("20") else "definitions"
    if not isinstance(named := schema.get(place, {}), dict):
        return schema  # the check says so
    for uri, error in entries.items():
        if (other := _draft_at(uri)) and DRAFTS.index(other) < DRAFTS.index(draft):
            raise error
    if any(anchor in schema for anchor in _ANCHORS) and "$id" not in schema:
        schema = {"$id": _NAMELESS, **schema}
    top = _extended(schema)
    found: dict[str, Any] = {}
    for entry in entries:
        waiting = [entry]
        while waiting:
            uri = waiting.pop()
            name = _name(uri, entry, top)
            if name not in found:
                found[name], others = _Copy(uri, entry, top, draft).made()
                waiting += others
    return {**schema, place: {**named, **found}}


def _entries(schema: dict[str, Any]) -> Iterator[tuple[str, SchemaError]]:
    """Yield the URIs of meta-schemas that a schema refers to and lacks, each with the error to refuse it."""
    references = References(schema)
    for pointer, here in walk(schema):
        for keyword, ref in refs_in(here):
            uri = references.absolute(ref, pointer)
            if urldefrag(ref).url and not references.has(uri) and _draft_at(uri):
                what = f"the reference {ref!r} leads to a newer draft than that of this schema"
                at = f"{pointer}/{keyword}"
                hint = "Declare that draft with `$schema`, or leave `$schema` out."
                yield uri, SchemaError(f"{at}: {what}.", pointer=at, hint=hint)


@cache
def _draft_at(uri: str) -> Draft | None:
    """Return the draft of the published meta-schema at a URI; None if there is none."""
    published = _published(uri)
    if published is None:
        return None
    return next((draft for draft in DRAFTS if draft.uri.strip("#") == published["$schema"].strip("#")), None)


@cache
def _published(uri: str) -> dict[str, Any] | None:
    """Return the published meta-schema at a URI, with http or https; None if there is none."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    scheme, _, rest = uri.partition("://")
    written = {f"{one}://{rest}" for one in ("http", "https")} if scheme in ("http", "https") else set()
    return next((REGISTRY.contents(one) for one in written if one in REGISTRY), None)


def _extended(schema: dict[str, Any]) -> str | None:
    """Return the URI to which dynamic references lead: "" for the meta-schema that the schema refers to.

    If the schema itself extends the meta-schema, it is the schema's own. None: it depends on the value.
    """
    if not any(anchor in here for _, here in walk(schema) if isinstance(here, dict) for anchor in _ANCHORS):
        return ""
    is_top = schema.get("$dynamicAnchor") == "meta" or schema.get("$recursiveAnchor") is True
    return urldefrag(schema["$id"]).url if is_top and isinstance(schema.get("$id"), str) else None


def _name(uri: str, entry: str, top: str | None) -> str:
    """Return the URI of a copy, which is another one for each meta-schema that is entered, or the same."""
    return uri if uri == entry or top != "" else f"{uri}?from={entry.rpartition('/')[2]}"


class _Copy:
    """A copy of the meta-schema at `uri`, reached through the one at `entry`, in the keywords of a draft."""

    def __init__(self, uri: str, entry: str, top: str | None, draft: Draft) -> None:
        self._uri, self._entry, self._top, self._draft = uri, entry, top, draft
        self._others: list[str] = []

    def made(self) -> tuple[dict[str, Any], list[str]]:
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
            here = {key: below for key, below in here.items() if key != "minimum"}
            here["exclusiveMinimum"] = 0
        names = here.get("dependencies", {}).values() if self._draft.name.startswith("20") else ()
        if names and all(isinstance(one, list) for one in names):
            here = {("dependentRequired" if key == "dependencies" else key): here[key] for key in here}
        return here
