"""The drafts of JSON Schema and their keywords."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urljoin

from gencli.structured.errors import SchemaError
from gencli.structured.schema.refs import walk

__all__ = ["DRAFTS", "Draft", "draft_of", "with_draft"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft: its name, the URI in `$schema`, and its class in jsonschema."""

    name: str
    uri: str
    class_name: str

    def validator(self) -> Any:
        """Return jsonschema's class."""
        import jsonschema

        return getattr(jsonschema, self.class_name)

    def described(self) -> dict[str, str]:
        """Return the keywords of the meta-schema, each with the URI of the schema of its value."""
        return _described(self)

    def judged(self) -> frozenset[str]:
        """Return the keywords that the final check enforces; all others are annotations in this draft."""
        return _judged(self)


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
    raise SchemaError(
        f"/$schema: {uri!r} is no draft that is known here.",
        pointer="/$schema",
        hint="Known are " + ", ".join(draft.uri for draft in DRAFTS) + ".",
    )


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


@cache
def _described(draft: Draft) -> dict[str, str]:
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    root = draft.uri.removesuffix("#")
    parts = [part["$ref"] for part in draft.validator().META_SCHEMA.get("allOf", ())]
    found = {}
    for uri in (root, *(urljoin(root, part) for part in parts)):
        for keyword in REGISTRY.contents(uri).get("properties", {}):
            found[keyword] = f"{uri}#/properties/{keyword}"
    return found


@cache
def _judged(draft: Draft) -> frozenset[str]:
    found = set(draft.validator().VALIDATORS)
    if draft.name == "4":
        found |= {"exclusiveMinimum", "exclusiveMaximum"}
    if "if" in found:
        found |= {"then", "else"}
    if "dependentRequired" in found:
        found |= {"minContains", "maxContains"}
    return frozenset(found)
