"""Groups of JSON Schema keywords: by type, by form of their subschemas, annotations."""

from __future__ import annotations

from typing import Any

__all__ = ["ANNOTATIONS", "APPLICATORS", "GROUPS", "LISTED", "MAPPED", "SINGLE", "declared_types"]

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
