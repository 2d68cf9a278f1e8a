"""The keywords of JSON Schema: of each type, those that apply schemas, those that refuse no value."""

from __future__ import annotations

from typing import Any

__all__ = ["ANNOTATIONS", "APPLICATORS", "GROUPS", "declared_types"]

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
APPLICATORS = ("$dynamicRef", "$recursiveRef", "$ref", "allOf", "anyOf", "else", "if", "not", "oneOf", "then")
ANNOTATIONS = frozenset(
    "$anchor $comment $defs $dynamicAnchor $id $recursiveAnchor $schema $vocabulary contentEncoding"
    " contentMediaType contentSchema default definitions deprecated description example examples id readOnly"
    " title writeOnly"
    # Of other tools, that say nothing of a value.
    " defaultSnippets deprecationMessage doNotSuggest enumDescriptions enumNames errorMessage externalDocs"
    " markdownDescription markdownEnumDescriptions meta note notes propertyOrder tags xml".split()
)


def declared_types(schema: dict[str, Any]) -> frozenset[str]:
    """The types that `type` names; empty if it names none."""
    types = schema.get("type", [])
    return frozenset([types] if isinstance(types, str) else types)
