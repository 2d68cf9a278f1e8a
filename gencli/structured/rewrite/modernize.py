"""Converts keywords of older drafts to draft 2020-12; removes keywords without effect."""

from __future__ import annotations

from gencli.structured.rewrite.node import AT, Flat, Scope, put, without

__all__ = ["modernize"]


_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)


def modernize(node: Flat, scope: Scope) -> Flat:
    """Return the equivalent schema in keywords of 2020-12, with `const` as `enum` and `type` as a list."""
    node = _items(_dependencies(_exclusive(_values(node)), scope), scope)
    for keyword in _COUNTS:
        if isinstance(node.get(keyword), float):
            node = put(node, keyword, int(node[keyword]))
    for keyword, empty in (("uniqueItems", False), ("required", []), ("minLength", 0), ("minItems", 0)):
        if keyword in node and node[keyword] == empty:
            node = _drop(node, keyword, scope)
    for keyword in ("minContains", "maxContains"):
        if keyword in node and "contains" not in node:
            node = _drop(node, keyword, scope)
    for keyword in ("then", "else"):
        if keyword in node and "if" not in node:
            node = _drop(node, keyword, scope)
    return node


def _drop(node: Flat, keyword: str, scope: Scope) -> Flat:
    scope.note(node[AT].get(keyword, ()), "says nothing here")
    return without(node, keyword)


def _values(node: Flat) -> Flat:
    if isinstance(node.get("type"), str):
        node = put(node, "type", [node["type"]])
    if "const" in node and "enum" not in node:
        node = without(put(node, "enum", [node["const"]], node[AT]["const"]), "const")
    return node


def _exclusive(node: Flat) -> Flat:
    for keyword, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := node.get(keyword), bool):
            places = node[AT].get(keyword, frozenset()) | node[AT].get(plain, frozenset())
            if flag and plain in node:
                node = without(put(node, keyword, node[plain], places), plain)
            else:
                node = without(node, keyword)
                node = put(node, plain, node[plain], places) if plain in node else node
    return node


def _dependencies(node: Flat, scope: Scope) -> Flat:
    if "dependencies" not in node:
        return node
    places = node[AT]["dependencies"]
    names = {name: below for name, below in node["dependencies"].items() if isinstance(below, list)}
    schemas = {name: below for name, below in node["dependencies"].items() if not isinstance(below, list)}
    scope.note(places, "rewritten: dependentRequired and dependentSchemas")
    node = without(node, "dependencies")
    node = put(node, "dependentRequired", names, places) if names else node
    return put(node, "dependentSchemas", schemas, places) if schemas else node


def _items(node: Flat, scope: Scope) -> Flat:
    if isinstance(node.get("items"), list):
        places, rest = node[AT]["items"], node.get("additionalItems")
        more = node[AT].get("additionalItems", frozenset())
        scope.note(places, "rewritten: prefixItems")
        node = put(without(node, "items", "additionalItems"), "prefixItems", node["items"], places)
        return node if rest is None else put(node, "items", rest, more)
    return _drop(node, "additionalItems", scope) if "additionalItems" in node else node
