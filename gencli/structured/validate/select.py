"""Output of a document: all of it in one line, or one part."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from gencli.errors import GenerationError, UsageError
from gencli.structured.schema.pointers import child, descend, keys_of, shown

__all__ = ["check_pointer", "compact", "select"]

_NUM_NAMED = 12  # keys listed in an error


def compact(value: Any) -> str:
    """Return the value as JSON in one line, without white space or unnecessary escapes."""
    if isinstance(value, dict):
        return "{" + ",".join(map(_member, value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _member(pair: tuple[str, Any]) -> str:
    return f"{compact(pair[0])}:{compact(pair[1])}"


def check_pointer(pointer: str) -> None:
    """Raise UsageError unless `pointer` is a JSON pointer."""
    try:
        keys_of(pointer)
    except ValueError as error:
        hint = "Write /KEY/0/KEY; the empty pointer is the whole document."
        raise UsageError(f"{error}, but a part is named by a JSON pointer", hint=hint) from None


def select(value: Any, pointer: str) -> str:
    """Return the part of a document at `pointer`: a string as its text, any other value as compact JSON.

    Raises UsageError for an invalid pointer, GenerationError if the document has no such part.
    """
    check_pointer(pointer)
    at = ""
    for key in keys_of(pointer):
        try:
            value = descend(value, key)
        except KeyError:
            raise GenerationError(
                f"The document has no {pointer}: at {shown(at)} is {_what(value)}"
            ) from None
        at = child(at, key)
    return value if isinstance(value, str) else compact(value)


def _what(value: Any) -> str:
    if isinstance(value, dict):
        named = [repr(key) for key in value][:_NUM_NAMED]
        more = f" and {len(value) - _NUM_NAMED} more" if len(value) > _NUM_NAMED else ""
        return f"an object with {', '.join(named)}{more}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    return f"{compact(value)[:60]}, which has no parts"
