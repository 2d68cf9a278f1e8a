"""JSON Lines: one object per line. Empty lines are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from gencli import json_reader
from gencli.batch.formats.base import Item, Lines, RecordFault, decode
from gencli.json_reader import DocumentError, JsonLimits

__all__ = ["LIMITS", "parse_json", "parse_record", "read_json_lines"]

LIMITS = JsonLimits(max_depth=100, max_digits=4300, has_decimals=False)


def read_json_lines(stream: BinaryIO, name: str) -> Iterator[Item]:
    """Yield the records of a JSON Lines file."""
    lines = Lines(stream)
    while True:
        try:
            line = next(lines)
            if line.strip():
                yield lines.number, parse_record(line)
        except StopIteration:
            return
        except RecordFault as fault:
            yield lines.number, fault.failure


def parse_record(data: bytes) -> dict[str, Any]:
    """Return the object of a JSON text. Raises RecordFault if it is not an object."""
    text = decode(data.rstrip())
    if text.startswith(_BOM):
        raise RecordFault(
            "This line begins with a byte order mark (EF BB BF), which only a file may. "
            "Were files put together with cat? Remove the mark."
        )
    value = parse_json(text)
    if not isinstance(value, dict):
        raise RecordFault(f"A record is a JSON object, but this is {_KINDS[type(value)]}.")
    return value


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, read strictly. Raises RecordFault with the position of a fault."""
    try:
        return json_reader.parse_json(text, LIMITS)
    except DocumentError as error:
        line = f"line {error.line}, " if error.line > 1 else ""
        what = error.text.removesuffix(".")
        raise RecordFault(f"This is not JSON: {what}, at {line}column {error.column}.") from None


_BOM = "\ufeff"
_KINDS = {
    list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip
