"""The formats of a structural tag: their fields, and the kinds of values of a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gencli.structured.errors import SchemaError
from gencli.structured.schema.pointers import child
from processors.errors import nearest

__all__ = ["FORMATS", "TOKEN_FORMATS", "Field", "check_format"]


@dataclass(frozen=True, slots=True)
class Field:
    """The kind of value that a field takes (a key of _WORDS), and whether the field is required."""

    kind: str
    is_required: bool = True


def _optional(**kinds: str) -> dict[str, Field]:
    return {name: Field(kind, is_required=False) for name, kind in kinds.items()}


_CONTENT = {"content": Field("format")}
_TAGS = {"tags": Field("tags"), **_optional(at_least_one="bool", stop_after_first="bool")}

FORMATS: Mapping[str, Mapping[str, Field]] = {
    "const_string": {"value": Field("text")},
    "json_schema": {
        "json_schema": Field("schema"),
        **_optional(style="style", any_order="bool", max_whitespace_cnt="size", excludes="texts"),
    },
    "any_text": _optional(excludes="texts", max_chars="count"),
    "grammar": {"grammar": Field("text")},
    "regex": {"pattern": Field("text")},
    "sequence": {"elements": Field("formats")},
    "or": {"elements": Field("formats")},
    "tag": {"begin": Field("text"), **_CONTENT, "end": Field("ends")},
    "triggered_tags": {"triggers": Field("texts"), **_TAGS, **_optional(excludes="texts")},
    "tags_with_separator": {**_TAGS, "separator": Field("text")},
    "optional": _CONTENT,
    "plus": _CONTENT,
    "star": _CONTENT,
    "repeat": {"min": Field("count"), "max": Field("limit"), **_CONTENT},
    "dispatch": {"rules": Field("rules"), **_optional(loop="bool", excludes="texts")},
}
TOKEN_FORMATS = ("token", "exclude_token", "any_tokens", "token_triggered_tags", "token_dispatch")

_LEAST = {"limit": -1, "count": 0, "size": 1}
_WORDS = {
    "text": "a text",
    "texts": "a list of texts",
    "bool": "true or false",
    "count": "a whole number from 0",
    "size": "a whole number from 1",
    "limit": "a whole number from 0, or -1 for no limit,",
    "schema": "a JSON schema",
    "format": "a format (an object with a type)",
    "formats": "a list of at least one format",
    "tags": "a list of at least one tag",
    "ends": "a text or a list of texts",
    "rules": "a list of [text, format]",
    "style": 'the text "json"',
}


def check_format(value: Any, pointer: str) -> Mapping[str, Field]:
    """Return the fields of a format, without those of nested formats.

    Raises SchemaError with a JSON pointer if a field is missing, unknown or has a wrong value.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise SchemaError(f"{_WORDS['format'].capitalize()} is expected at {pointer}.", pointer=pointer)
    kind = value["type"]
    if kind in TOKEN_FORMATS:
        what = f"The format {kind!r} at {pointer} names tokens, which an output of text has not"
        raise SchemaError(f"{what}.", pointer=pointer, hint="Write the text of the token.")
    if kind not in FORMATS:
        what = f"There is no format {kind!r}, at {child(pointer, 'type')}."
        raise SchemaError(what, pointer=child(pointer, "type"), hint=nearest(kind, FORMATS))
    fields = FORMATS[kind]
    for name in value.keys() - fields.keys() - {"type"}:
        hint = nearest(name, fields)
        raise SchemaError(
            f"The format {kind!r} has no field {name!r}, at {pointer}.", pointer=pointer, hint=hint
        )
    for name, field in fields.items():
        _check_field(value, name, field, pointer)
    return fields


def _check_field(value: dict[str, Any], name: str, field: Field, pointer: str) -> None:
    if name not in value:
        if field.is_required:
            raise SchemaError(f"The format at {pointer} lacks its field {name!r}.", pointer=pointer)
    elif not _fits(value[name], field.kind):
        place = child(pointer, name)
        raise SchemaError(f"{_WORDS[field.kind].capitalize()} is expected at {place}.", pointer=place)


def _fits(value: Any, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    if kind == "bool":
        return isinstance(value, bool)
    if kind in _LEAST:
        return isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST[kind]
    if kind == "schema":
        return isinstance(value, bool | dict)
    if kind == "style":
        return bool(value == "json")
    if kind == "ends":
        return isinstance(value, str) or (bool(value) and _fits(value, "texts"))
    if kind == "rules":
        return isinstance(value, list) and bool(value) and all(map(_is_rule, value))
    return isinstance(value, dict) if kind == "format" else isinstance(value, list) and bool(value)


def _is_rule(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and bool(value[0])
