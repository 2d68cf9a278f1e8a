"""Errors of schemas and documents, the places in them as JSON pointers (RFC 6901), and the time limit of
all work on a schema before a run.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from gencli.errors import ConfigError, GenerationError, UsageError
from processors.request_values import keys_of


class SchemaError(ConfigError):
    """A schema that cannot be used; `pointer` is the JSON pointer of the fault."""

    def __init__(self, message: str, *, pointer: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer


class OutOfTime(ConfigError):
    """A schema was not checked, planned or compiled within the time limit."""


class GiveUp(Exception):
    """A schema or pattern cannot be rewritten so that a mask enforces it."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time of `time.monotonic`; `seconds`: the whole limit, for errors."""

    seconds: float
    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self.end - time.monotonic())

    def check(self) -> None:
        """Raise OutOfTime if the deadline has passed."""
        if time.monotonic() > self.end:
            hint = "Make it smaller, or give it more time with `grammar_timeout`."
            message = f"The schema was not checked within the time limit of {self.seconds:g} s."
            raise OutOfTime(message, hint=hint)

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; check the deadline before each."""
        for item in items:
            self.check()
            yield item


NEVER = Deadline(math.inf, math.inf)

_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def child(pointer: str, *keys: str | int) -> str:
    """Return the pointer of a place below another one."""
    return pointer + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def descend(value: Any, key: str) -> Any:
    """Return the value at a key. Raises KeyError if there is none."""
    if isinstance(value, dict):
        return value[key]
    if isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
        return value[int(key)]
    raise KeyError(key)


def shown(pointer: str) -> str:
    """Return the pointer as messages show it."""
    return pointer or "the root"


_NUM_NAMED = 12  # keys listed in an error


def compact(value: Any) -> str:
    """Return the value as JSON in one line, without white space or unnecessary escapes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(key)}:{compact(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def check_pointer(pointer: str) -> None:
    """Raise UsageError unless `pointer` is a JSON pointer."""
    try:
        keys_of(pointer)
    except ValueError as error:
        hint = "Write /KEY/0/KEY; the empty pointer is the whole document."
        raise UsageError(f"`select`: {error}, but a part is named by a JSON pointer.", hint=hint) from None


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
            message = f"The document has no {pointer}: at {shown(at)} is {_what(value)}"
            raise GenerationError(message) from None
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


NOTHING: dict[str, Any] = {"not": {}}  # `false` as a schema, in a form for which jsonschema reports the place
_NUM_SHOWN = 60  # characters of a value in a message


def location(error: Any) -> str:
    """Return the JSON pointer of the invalid value."""
    return shown(child("", *error.absolute_path))


def message(error: Any) -> str:
    """Return the fault, shortened to a line or two."""
    value, instance = shortened(error.validator_value), shortened(error.instance)
    if error.schema == NOTHING:
        return f"{instance} is where nothing is allowed"
    if error.validator in ("anyOf", "oneOf") and error.context:
        count = len(error.validator_value)
        return f"{instance} fits none of the {count} alternatives of {error.validator}; {_nearest(error)}"
    exclusive = f"exclusive{str(error.validator).capitalize()}"  # in draft 4 a boolean next to the bound
    is_exclusive = isinstance(error.schema, dict) and error.schema.get(exclusive) is True
    template = _MESSAGES.get(exclusive if is_exclusive else error.validator)
    return f"{instance} {template.format(value)}" if template else _cut(error.message, 200)


_MESSAGES = {
    "type": "is not of type {}",
    "enum": "is none of {}",
    "const": "is not {}",
    "minimum": "is below the minimum {}",
    "maximum": "is above the maximum {}",
    "exclusiveMinimum": "is not above {}",
    "exclusiveMaximum": "is not below {}",
    "multipleOf": "is no multiple of {}",
    "minLength": "has fewer than {} characters",
    "maxLength": "has more than {} characters",
    "pattern": "does not match the pattern {}",
    "format": "is not of the format {}",
    "minItems": "has fewer than {} items",
    "maxItems": "has more than {} items",
    "uniqueItems": "has two equal items",
    "minProperties": "has fewer than {} properties",
    "maxProperties": "has more than {} properties",
    "oneOf": "fits more than one alternative of oneOf",
    "not": "fits what is not allowed: {}",
}


def _nearest(error: Any) -> str:
    from jsonschema.exceptions import best_match

    best = best_match(iter([error]))
    return f"of the nearest, {location(best)}: {message(best)}" if best is not error else "none is near"


def shortened(value: Any) -> str:
    """Return the value as JSON, shortened to 60 characters."""
    try:
        return _cut(compact(value), _NUM_SHOWN)
    except (TypeError, ValueError):
        return _cut(repr(value), _NUM_SHOWN)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
