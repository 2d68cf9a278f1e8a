"""The final check: whether a finished document is what its schema says. It is timed and fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import islice
from typing import Any

from gencli.structured.drafts import draft_of
from gencli.structured.formats import FORMATS
from gencli.structured.keywords import time_limit, validator_class
from gencli.structured.pointers import child, descend, keys_of, shown
from gencli.structured.refs import walk
from gencli.structured.select import compact

__all__ = ["MAX_FAULTS", "MAX_SECONDS", "Validator"]

MAX_SECONDS = 10.0  # for one document
MAX_FAULTS = 10  # that are named
_NOTHING: dict[str, Any] = {"not": {}}
_NUM_SHOWN = 60  # characters of a value in a message


class Validator:
    """Checks values against a schema that `check_schema` has passed, by the rules of its draft.

    `formats` says whether `format` is checked, for those in formats.FORMATS; else it is a remark.
    """

    def __init__(self, schema: Any, formats: bool = False, *, max_seconds: float = MAX_SECONDS) -> None:
        from referencing import Registry

        draft = draft_of(schema)
        self._max_seconds = max_seconds
        self._validator = validator_class(draft)(
            _own(schema), registry=Registry(), format_checker=_format_checker() if formats else None
        )

    def faults(self, value: Any) -> tuple[str, ...]:
        """What is wrong with the value, each with its JSON pointer; nothing if it is valid.

        A value that could not be checked in time, or is nested too deep to be checked, has a fault.
        """
        try:
            with time_limit(self._max_seconds):
                errors = list(islice(self._validator.iter_errors(value), MAX_FAULTS))
                return tuple(f"{_place(error)}: {_message(error)}" for error in errors)
        except TimeoutError:
            return (f"{shown('')}: checking it against the schema took more than {self._max_seconds:g} s",)
        except RecursionError:
            return (f"{shown('')}: it is nested too deep to be checked against the schema",)


def _own(schema: Any) -> Any:
    """A copy in which jsonschema names every place, and stays with the class that it was given."""
    own: Any = {"": json.loads(json.dumps(schema))}
    for pointer, here in list(walk(own[""])):
        if isinstance(here, dict):
            here.pop("$schema", None)  # it would go on with its own class below
        elif here is False:
            *way, last = ("", *keys_of(pointer))
            holder: Any = reduce(descend, way, own)
            holder[int(last) if isinstance(holder, list) else last] = _NOTHING  # false has no place
    return own[""]


def _format_checker() -> Any:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, test in FORMATS.items():
        checker.checks(name, raises=ValueError)(_of_strings(test))
    return checker


def _of_strings(test: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or test(value)


def _place(error: Any) -> str:
    return shown(child("", *error.absolute_path))


def _message(error: Any) -> str:
    value, given = _short(error.validator_value), _short(error.instance)
    if error.schema == _NOTHING:
        return f"{given} stands where nothing is allowed"
    if error.validator in ("anyOf", "oneOf") and error.context:
        count = len(error.validator_value)
        return f"{given} fits none of the {count} alternatives of {error.validator}; {_nearest(error)}"
    template = _MESSAGES.get(error.validator)
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
    return f"of the nearest, {_place(best)}: {_message(best)}" if best is not error else "none is near"


def _short(value: Any) -> str:
    try:
        return _cut(compact(value), _NUM_SHOWN)
    except (TypeError, ValueError):
        return _cut(repr(value), _NUM_SHOWN)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
