"""The option `structural_tag`: free text with parts of a fixed format, in xgrammar's JSON notation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.errors import ConfigError
from gencli.json_reader import DocumentError, parse_json
from gencli.structured.calls.embedded import Schemas, ValueCheck, check_inside, embed, json_end
from gencli.structured.calls.tag_formats import Field, check_format
from gencli.structured.errors import SchemaError
from gencli.structured.notations.plans import plan_grammar, plan_regex
from gencli.structured.plan import Audit, Finding, Plan, TextCheck, Variant
from gencli.structured.schema.pointers import child
from processors.constraint import Constraint

__all__ = ["TagCheck", "plan_structural_tag"]


@dataclass(frozen=True, slots=True)
class TagCheck(TextCheck):
    """Checks the JSON of each tag that begins in the finished text."""

    tags: tuple[tuple[str, tuple[str, ...], ValueCheck], ...]

    def faults(self, text: str) -> tuple[str, ...]:
        return tuple(self._faults(text))

    def _faults(self, text: str) -> Iterator[str]:
        at = 0
        while begun := [
            (text.find(tag[0], at), -len(tag[0]), tag) for tag in self.tags if tag[0] in text[at:]
        ]:
            start, _, (begin, ends, check) = min(begun, key=lambda found: found[:2])
            at = json_end(text, start + len(begin))
            yield from (
                f"After {begin!r}: {fault}" for fault in _faults(text[start + len(begin) : at], check)
            )
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
    builder = _Builder(schemas)
    built = {"type": "structural_tag", "format": builder.format(document["format"], "/format")}
    constraint = Constraint("structural_tag", json.dumps(built, ensure_ascii=False), "xgrammar")
    variant = Variant(constraint, Audit("xgrammar", tuple(builder.findings)))
    return Plan((variant,), "Only xgrammar has structural tags.", check=TagCheck(tuple(builder.tags)))


@dataclass
class _Builder:
    """Writes a structural tag with rewritten parts; collects findings and tags."""

    schemas: Schemas
    findings: list[Finding] = field(default_factory=list)
    tags: list[tuple[str, tuple[str, ...], ValueCheck]] = field(default_factory=list)

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
        kind, place = fields[name].kind if name in fields else "text", child(pointer, name)
        if kind == "format":
            return self.format(value, place)
        if kind == "tags":
            for number, tag in enumerate(value):
                if not isinstance(tag, dict) or tag.get("type", "tag") != "tag":
                    at = child(place, number)
                    raise SchemaError(f"A tag is expected at {at}.", pointer=at)
            return [self.format({"type": "tag", **tag}, child(place, n)) for n, tag in enumerate(value)]
        if kind == "formats":
            return [self.format(item, child(place, number)) for number, item in enumerate(value)]
        if kind == "rules":
            return [[text, self.format(item, child(place, n, 1))] for n, (text, item) in enumerate(value)]
        return value

    def _schema(self, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        place = child(pointer, "json_schema")
        check_inside(value["json_schema"], place, self.schemas.deadline)
        found = embed(value["json_schema"], place, "xgrammar", self.schemas)
        if found is None:
            raise SchemaError(f"xgrammar cannot enforce the schema at {place}.", pointer=place)
        self.findings += found.findings
        return {"max_whitespace_cnt": found.whitespace, **value, "json_schema": found.schema}

    def _rewritten(self, value: dict[str, Any], pointer: str) -> dict[str, Any]:
        name, plan = ("pattern", plan_regex) if value["type"] == "regex" else ("grammar", plan_grammar)
        place = child(pointer, name)
        try:
            variant = plan(value[name]).variants[0]
        except ConfigError as error:
            raise SchemaError(f"{error.message} It is at {place}.", pointer=place, hint=error.hint) from None
        return {**value, name: variant.constraint.text}

    def _note_tag(self, tag: dict[str, Any]) -> None:
        content = tag["content"]
        if tag["begin"] and isinstance(content, dict) and content.get("type") == "json_schema":
            ends = (tag["end"],) if isinstance(tag["end"], str) else tuple(tag["end"])
            self.tags.append((tag["begin"], ends, self.schemas.check(content.get("json_schema"))))


def _faults(text: str, check: ValueCheck) -> tuple[str, ...]:
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
            place = child(pointer, "tags", number, "begin")
            what = f"{begin!r} at {place} begins with {len(triggers)} of the triggers"
            raise SchemaError(f"{what}; it has to be one.", pointer=place)
