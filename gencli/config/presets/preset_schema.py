"""The JSON Schema of presets for editors, from the options and the stages."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from gencli.config.options.run import Option
from gencli.config.presets.keys import KEYS, STRUCTURE, hint_of, stage_specs
from processors.catalog import Phase, StageSpec
from processors.conditions.when import NO_CONDITION
from processors.conversion import Bounds
from processors.order import GROUPS
from processors.params import WHEN, WHEN_DOC, describe
from processors.registry import Registry

__all__ = ["json_schema"]

_KINDS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


def json_schema(registry: Registry | None = None) -> dict[str, Any]:
    """Return the schema; without a registry it has the built-in stages."""
    specs = stage_specs(registry)
    names = [spec.name for spec in specs]
    text = {"type": "string", "minLength": 1}
    stages = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    places = [*names, *GROUPS, *(phase.name.lower() for phase in Phase)]
    item = {"type": "object", "properties": stages, "additionalProperties": False}
    shapes: dict[str, dict[str, Any]] = {
        "extends": {"anyOf": [text, {"type": "array", "items": text}]},
        "chain": {
            "type": "array",
            "minItems": 1,
            "items": {"anyOf": [{"enum": places}, {**item, "minProperties": 1, "maxProperties": 1}]},
        },
        "notes": {"anyOf": [text, {"type": "array", "items": text}]},
        "stages": item,
        "fields": {
            "type": "object",
            "propertyNames": {"pattern": "^(/.*)?$"},
            "additionalProperties": {"anyOf": [{"const": "greedy"}, item]},
        },
    }
    structure = {key: {"description": STRUCTURE[key], **shape} for key, shape in shapes.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A preset of gencli",
        "type": "object",
        "properties": {**structure, **{key: _option(entry) for key, entry in KEYS.items()}},
        "additionalProperties": False,
        "$defs": {**{spec.name: _stage(spec) for spec in specs}, "when": _when()},
    }


def _option(entry: Option) -> dict[str, Any]:
    shape = _shape(hint_of(entry), entry.bounds)
    if entry.many and shape.get("type") == "array":
        shape = {"anyOf": [shape, shape["items"]]}
    return _described(entry.help, shape, entry.default)


def _stage(spec: StageSpec) -> dict[str, Any]:
    fields = {
        name: _described(about["doc"], _shape(about["type"], about["bounds"]), about["default"])
        for name, about in describe(spec.params).items()
    }
    main = {key: value for key, value in fields[spec.params.main()].items() if key != "description"}
    has_condition = spec.name not in NO_CONDITION
    parts = {**fields, WHEN: {"$ref": "#/$defs/when"}} if has_condition else fields
    whole = {"type": "object", "properties": parts, "additionalProperties": False, "minProperties": 1}
    several = {"type": "array", "minItems": 1, "items": whole}
    shapes = [main, whole, several] if has_condition else [main, whole]
    return {"description": (spec.params.__doc__ or "").strip(), "anyOf": shapes}


def _when() -> dict[str, Any]:
    """Return the schema of a condition."""
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0}
    tags = {"anyOf": [{"const": "thinking"}, {"type": "array", "items": text, "minItems": 2, "maxItems": 2}]}
    parts = {"from": number, "to": number, "inside": tags, "outside": tags, "after": text, "path": text}
    shape = {"type": "object", "properties": parts, "additionalProperties": False, "minProperties": 1}
    return {"description": WHEN_DOC, **shape}


def _described(doc: str, shape: dict[str, Any], default: Any) -> dict[str, Any]:
    has_default = default is not None
    return {"description": doc, **shape, **({"default": _plain(default)} if has_default else {})}


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _shape(hint: Any, bounds: Bounds) -> dict[str, Any]:
    """Return the schema of an annotation."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(arguments)}
    if get_origin(hint) in (Union, types.UnionType):
        return {"anyOf": [_shape(item, bounds) for item in arguments]}
    if get_origin(hint) is tuple:
        return _list(arguments, bounds)
    kind: dict[str, Any] = {"type": _KINDS[hint]}
    if hint in (int, float):
        limits = {name: getattr(bounds, name) for name in _BOUNDS}
        kind.update({_BOUNDS[name]: limit for name, limit in limits.items() if limit is not None})
    return kind


def _list(arguments: tuple[Any, ...], bounds: Bounds) -> dict[str, Any]:
    if arguments[-1] is Ellipsis:
        items = {"type": "array", "items": _shape(arguments[0], bounds)}
        if get_origin(arguments[0]) is not tuple:
            return items
        value = _shape(get_args(arguments[0])[1], bounds)  # pairs may be written as a mapping
        return {"anyOf": [items, {"type": "object", "additionalProperties": value}]}
    parts = [_shape(item, bounds) for item in arguments]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
