"""Schemas in one line: `name, age int: in years, tags[]`.

Fields are separated by commas, or by line breaks if there are any. A field is a name, a type unless it is a
string, and after a colon a description; `tags[]` is a list. All fields are required, and no others are
allowed. The notation is that of the `llm` command, extended by lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gencli.structured.errors import SchemaError
from processors.names import close_names

__all__ = ["TYPES", "parse_concise"]

TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

_NAMES = {**{name: short for short, name in TYPES.items()}, "text": "str", "double": "float"}
_FIELD = re.compile(r"\s*(?P<name>[^\s:\[\](){}<>\"'?|=]+)(?P<list>\[\])?(?P<rest>[^:]*)(?::(?P<text>.*))?")
_HINT = (
    "Fields look like this: name, age int: in years, tags[]. A description with a comma needs one field a "
    "line. For anything else write a JSON schema."
)


def parse_concise(text: str) -> dict[str, Any]:
    """Return the JSON schema of an object with these fields. SchemaError shows the position of a mistake."""
    if not text.strip():
        raise SchemaError("The schema is empty.", hint=_HINT)
    properties: dict[str, Any] = {}
    for field in _fields(text.strip()):
        found = _FIELD.match(field.line[: field.end], field.start)
        if found is None:
            raise field.fault(*_no_field(field.line[: field.end], field.start))
        name = found["name"]
        if name in properties:
            raise field.fault(found.start("name"), f"the field {name!r} stands here a second time")
        one = {"type": _type(field, found)}
        schema: dict[str, Any] = {"type": "array", "items": one} if found["list"] else one
        if description := (found["text"] or "").strip():
            schema["description"] = description
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class _Field:
    """A field from `start` to `end` of a line; `number` is the line number if there are several lines."""

    line: str
    start: int
    end: int
    number: int = 0

    def fault(self, at: int, why: str) -> SchemaError:
        place = f"line {self.number}, column {at + 1}" if self.number else f"column {at + 1}"
        return SchemaError(f"The schema, {place}: {why}\n  {self.line}\n  {' ' * at}^", hint=_HINT)


def _fields(text: str) -> Iterator[_Field]:
    if len(lines := text.splitlines()) > 1:
        yield from (_Field(line, 0, len(line), n) for n, line in enumerate(lines, 1) if line.strip())
        return
    start = 0
    for part in text.split(","):
        yield _Field(text, start, start + len(part))
        start += len(part) + 1


def _type(field: _Field, found: re.Match[str]) -> str:
    word = found["rest"].strip()
    at = found.end("rest") - len(found["rest"].lstrip())
    if not word:
        return TYPES["str"]
    if word in TYPES and found["rest"][0].isspace():
        return TYPES[word]
    if word == "[]" or (word.endswith("[]") and word[:-2] in TYPES):
        raise field.fault(at, f"a list is written {found['name']}[] {word[:-2]}".rstrip())
    if re.search(r"[\[\](){}<>|=?,]", word):
        raise field.fault(*_no_field(field.line[: found.end("rest")], at))
    near = _NAMES.get(word.lower()) or next(iter(close_names(word, TYPES)), None)
    known = f"did you mean {near}?" if near else f"there are {', '.join(TYPES)}"
    raise field.fault(at, f"{word!r} is no type; {known}")


def _no_field(line: str, start: int) -> tuple[int, str]:
    """Return the position and the reason why the rest of a line is not a field."""
    at = start + len(line[start:]) - len(line[start:].lstrip())
    char = line[at : at + 1]
    if not char:
        return at, "a name has to stand here"
    if char == "?":
        return at, "every field is required; there are no optional ones in this form"
    if char in "{([<":
        return at, "objects within objects are not part of this form"
    return at, f"{char!r} cannot stand here"
