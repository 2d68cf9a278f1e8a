"""JSON Lines: an object a line. Empty lines are passed over."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from gencli.batch.formats.base import Item, Lines, RecordFault, decode

__all__ = ["MAX_DEPTH", "parse_json", "parse_record", "read_json_lines"]

MAX_DEPTH = 100
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that may be half a character


def read_json_lines(stream: BinaryIO, name: str) -> Iterator[Item]:
    """The records of a JSON Lines file."""
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
    """The object that the JSON text is; RecordFault if it is none."""
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
    """The value of a JSON text, read strictly: no NaN, no key twice, no half characters. Else RecordFault."""
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
            raise RecursionError
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise RecordFault(f"This is not JSON: {error.msg} at {line}column {error.colno}.") from None
    except UnicodeEncodeError:
        raise RecordFault(r"An escape \ud800-\udfff is half a character.") from None
    except RecursionError:
        raise RecordFault(f"The values are nested more than {MAX_DEPTH} deep.") from None
    except ValueError as error:
        raise RecordFault(f"This is not JSON: {str(error).partition(';')[0]}.") from None
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [item.values() if isinstance(item, dict) else item for item in level if _is_nested(item)]
        if not inner:
            return False
        level = [item for items in inner for item in items]
    return True


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return made


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON value")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


_BOM = "\ufeff"
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
_KINDS = {
    list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false",
    type(None): "null",
}  # fmt: skip
