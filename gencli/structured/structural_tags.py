"""The option `structural_tag`: free text with parts of a fixed format, in xgrammar's JSON notation; the
formats, their fields, and the kinds of values of a field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.errors import ConfigError
from gencli.json_text import DocumentError, parse_json
from gencli.structured.output_spec import Audit, KeywordFinding, Plan, TextCheck, Variant
from gencli.structured.schema_errors import SchemaError, child
from gencli.structured.schema_validator import Validator
from gencli.structured.text_plans import plan_grammar, plan_regex
from gencli.structured.tool_calls import Schemas, check_inside, embed, json_end
from processors.errors import nearest
from processors.request_values import Constraint


@dataclass(frozen=True, slots=True)
class TagCheck(TextCheck):
    """Checks the JSON of each tag that begins in the finished text."""

    tags: tuple[tuple[str, tuple[str, ...], Validator], ...]

    def faults(self, text: str) -> tuple[str, ...]:
        return tuple(self._faults(text))

    def _faults(self, text: str) -> Iterator[str]:
        at = 0
        while begun := [(text.find(t[0], at), -len(t[0]), t) for t in self.tags if t[0] in text[at:]]:
            start, _, (begin, ends, check) = min(begun, key=lambda match: match[:2])
            at = json_end(text, start + len(begin))
            faults = _faults(text[start + len(begin) : at], check)
            yield from (f"After {begin!r}: {fault}" for fault in faults)
            if not text.startswith(ends, at):
                yield f"After {begin!r} and its JSON, {' or '.join(map(repr, ends))} is missing."


def plan_structural_tag(text: str, schemas: Schemas) -> Plan:
    """Return the plan of a structural tag, with its schemas, regexes and grammars rewritten.

    Only xgrammar has structural tags. Raises SchemaError with a JSON pointer: an unknown format or field, a
    field with a wrong value, a tag with no or several triggers, a format that names tokens.
    """
    try:
        document = parse_json(text)
    except DocumentError as error:
        raise SchemaError(f"The structural tag is no JSON document: {error.about(text)}") from None
    if not isinstance(document, dict) or document.get("type") != "structural_tag" or "format" not in document:
        hint = 'It has the form {"type": "structural_tag", "format": {...}}.'
        raise SchemaError("This is no structural tag.", hint=hint)
    for name in document.keys() - {"type", "format"}:
        raise SchemaError(f"A structural tag has no field {name!r}.", pointer=child("", name))
    builder = _TagBuilder(schemas)
    built = {"type": "structural_tag", "format": builder.format(document["format"], "/format")}
    constraint = Constraint("structural_tag", json.dumps(built, ensure_ascii=False), "xgrammar")
    variant = Variant(constraint, Audit("xgrammar", tuple(builder.findings)))
    return Plan((variant,), "Only xgrammar has structural tags.", check=TagCheck(tuple(builder.tags)))


@dataclass
class _TagBuilder:
    """Writes a structural tag with rewritten parts; collects findings and tags."""

    schemas: Schemas
    findings: list[KeywordFinding] = field(default_factory=list)
    tags: list[tuple[str, tuple[str, ...], Validator]] = field(default_factory=list)

    def format(self, value: Any, pointer: str) -> dict[str, Any]:
        fields = check_format(value, pointer)
        _check_sense(value, pointer)
        if value["type"] == "json_schema":
            return self._schema(value, pointer)
        if value["type"] in ("regex", "grammar"):
            return self._rewritten(value, pointer)
        built = {name: self._field(name, value[name], fields, pointer) for name in value}
        if value["type"] == "tag":
            self._note_tag(value)
        return built

    def _field(self, name: str, value: Any, fields: Mapping[str, Field], pointer: str) -> Any:
        kind, field_pointer = fields[name].kind if name in fields else "text", child(pointer, name)
        if kind == "format":
            return self.format(value, field_pointer)
        if kind == "tags":
            for number, tag in enumerate(value):
                if not isinstance(tag, dict) or tag.get("type", "tag") != "tag":
                    at = child(field_pointer, number)
                    raise SchemaError(f"A tag is expected at {at}.", pointer=at)
            value = [{"type": "tag", **tag} for tag in value]
        if kind in ("tags", "formats"):
            return [self.format(item, child(field_pointer, number)) for number, item in enumerate(value)]
        if kind == "rules":
            rules = enumerate(value)
            return [[text, self.format(item, child(field_pointer, n, 1))] for n, (text, item) in rules]
        return value

    def _schema(self, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        field_pointer = child(pointer, "json_schema")
        check_inside(value["json_schema"], field_pointer, self.schemas.deadline)
        embedded = embed(value["json_schema"], field_pointer, "xgrammar", self.schemas)
        if embedded is None:
            message = f"xgrammar cannot enforce the schema at {field_pointer}."
            raise SchemaError(message, pointer=field_pointer)
        self.findings += embedded.audit.findings
        constraint = embedded.constraint
        schema = json.loads(constraint.text)
        return {"max_whitespace_cnt": constraint.whitespace, **value, "json_schema": schema}

    def _rewritten(self, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        name, plan = ("pattern", plan_regex) if value["type"] == "regex" else ("grammar", plan_grammar)
        field_pointer = child(pointer, name)
        try:
            variant = plan(value[name]).variants[0]
        except ConfigError as error:
            message = f"{error.message} It is at {field_pointer}."
            raise SchemaError(message, pointer=field_pointer, hint=error.hint) from None
        return {**value, name: variant.constraint.text}

    def _note_tag(self, tag: dict[str, Any]) -> None:
        content = tag["content"]
        if tag["begin"] and isinstance(content, dict) and content.get("type") == "json_schema":
            ends = (tag["end"],) if isinstance(tag["end"], str) else tuple(tag["end"])
            self.tags.append((tag["begin"], ends, Validator(content.get("json_schema"))))


def _faults(text: str, check: Validator) -> tuple[str, ...]:
    try:
        return check.faults(parse_json(text))
    except DocumentError as error:
        return (error.message,)


def _check_sense(value: dict[str, Any], pointer: str) -> None:
    """Raise SchemaError for fields of a format that contradict each other."""
    if value["type"] == "repeat" and value["max"] != -1 and value["min"] > value["max"]:
        raise SchemaError(f"The minimum is above the maximum at {pointer}.", pointer=pointer)
    if value["type"] != "triggered_tags":
        return
    for number, tag in enumerate(value["tags"]):
        begin = tag.get("begin") if isinstance(tag, dict) else None
        if not isinstance(begin, str):
            continue
        triggers = [trigger for trigger in value["triggers"] if begin.startswith(trigger)]
        if len(triggers) != 1:
            field_pointer = child(pointer, "tags", number, "begin")
            fault = f"{begin!r} at {field_pointer} begins with {len(triggers)} of the triggers"
            raise SchemaError(f"{fault}; it has to begin with one.", pointer=field_pointer)


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
        message = f"The format {kind!r} at {pointer} names tokens, but the output is text"
        raise SchemaError(f"{message}.", pointer=pointer, hint="Write the text of the token.")
    if kind not in FORMATS:
        message = f"There is no format {kind!r}, at {child(pointer, 'type')}."
        raise SchemaError(message, pointer=child(pointer, "type"), hint=nearest(kind, FORMATS))
    fields = FORMATS[kind]
    for name in value.keys() - fields.keys() - {"type"}:
        hint = nearest(name, fields)
        message = f"The format {kind!r} has no field {name!r}, at {pointer}."
        raise SchemaError(message, pointer=pointer, hint=hint)
    for name, about in fields.items():
        if name not in value and about.is_required:
            raise SchemaError(f"The format at {pointer} lacks its field {name!r}.", pointer=pointer)
        if name in value and not _fits(value[name], about.kind):
            at = child(pointer, name)
            raise SchemaError(f"{_WORDS[about.kind].capitalize()} is expected at {at}.", pointer=at)
    return fields


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
    if kind == "rules" and _fits(value, "formats"):
        pairs = all(isinstance(rule, list) and len(rule) == 2 for rule in value)
        return pairs and _fits([text for text, _ in value], "texts")
    return isinstance(value, dict) if kind == "format" else isinstance(value, list) and bool(value)
