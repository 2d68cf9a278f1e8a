"""Errors of jsonschema in gencli's words: values as JSON, places as JSON pointers."""

from __future__ import annotations

from typing import Any

from gencli.structured.schema.pointers import child, shown
from gencli.structured.validate.select import compact

__all__ = ["NOTHING", "message", "place", "shortened"]

NOTHING: dict[str, Any] = {"not": {}}  # `false` as a schema, in a form for which jsonschema reports the place
_NUM_SHOWN = 60  # characters of a value in a message


def place(error: Any) -> str:
    """Return the JSON pointer of the invalid value."""
    return shown(child("", *error.absolute_path))


def message(error: Any) -> str:
    """Return the fault, shortened to a line or two."""
    value, given = shortened(error.validator_value), shortened(error.instance)
    if error.schema == NOTHING:
        return f"{given} stands where nothing is allowed"
    if error.validator in ("anyOf", "oneOf") and error.context:
        count = len(error.validator_value)
        return f"{given} fits none of the {count} alternatives of {error.validator}; {_nearest(error)}"
    exclusive = f"exclusive{str(error.validator).capitalize()}"  # in draft 4 a boolean next to the bound
    is_exclusive = isinstance(error.schema, dict) and error.schema.get(exclusive) is True
    template = _MESSAGES.get(exclusive if is_exclusive else error.validator)
    return f"{given} {template.format(value)}" if template else _cut(error.message, 200)


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
    return f"of the nearest, {place(best)}: {message(best)}" if best is not error else "none is near"


def shortened(value: Any) -> str:
    """Return the value as JSON, shortened to 60 characters."""
    try:
        return _cut(compact(value), _NUM_SHOWN)
    except (TypeError, ValueError):
        return _cut(repr(value), _NUM_SHOWN)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
