"""Validation of a value against its schema, with a time limit and without fetching anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from itertools import islice
from typing import Any

from gencli.structured.schema.drafts import draft_of
from gencli.structured.schema.formats import FORMATS
from gencli.structured.schema.pointers import descend, keys_of, shown
from gencli.structured.schema.published import with_published
from gencli.structured.schema.refs import walk
from gencli.structured.validate.keywords import time_limit, validator_class
from gencli.structured.validate.messages import NOTHING, message, place

__all__ = ["MAX_FAULTS", "MAX_SECONDS", "Validator"]

MAX_SECONDS = 10.0  # seconds for one value
MAX_FAULTS = 10  # limit of reported faults


class Validator:
    """Checks values against a schema that `check_schema` has passed, by the rules of its draft.

    `formats`: `format` is checked for the formats in formats.FORMATS; otherwise it is an annotation.
    """

    def __init__(self, schema: Any, formats: bool = False, *, max_seconds: float = MAX_SECONDS) -> None:
        from referencing import Registry

        schema = with_published(schema)
        draft = draft_of(schema)
        self._max_seconds = max_seconds
        self._validator = validator_class(draft)(
            _own(schema), registry=Registry(), format_checker=_format_checker() if formats else None
        )

    def faults(self, value: Any) -> tuple[str, ...]:
        """Return the faults of the value, each with its JSON pointer; () if it is valid.

        A value that cannot be checked in time, or is nested too deeply, has a fault.
        """
        try:
            with time_limit(self._max_seconds):
                errors = list(islice(self._validator.iter_errors(value), MAX_FAULTS))
                return tuple(f"{place(error)}: {message(error)}" for error in errors)
        except TimeoutError:
            return (f"{shown('')}: checking it against the schema took more than {self._max_seconds:g} s",)
        except RecursionError:
            return (f"{shown('')}: it is nested too deep to be checked against the schema",)


def _own(schema: Any) -> Any:
    """Return a copy for which jsonschema reports every place and uses only the given class."""
    own: Any = {"": json.loads(json.dumps(schema))}
    for pointer, here in list(walk(own[""])):
        if isinstance(here, dict):
            here.pop("$schema", None)  # jsonschema would switch to its own class
        elif here is False:
            *way, last = ("", *keys_of(pointer))
            holder: Any = reduce(descend, way, own)
            holder[int(last) if isinstance(holder, list) else last] = (
                NOTHING  # jsonschema reports no place for `false`
            )
    return own[""]


def _format_checker() -> Any:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, test in FORMATS.items():
        checker.checks(name, raises=ValueError)(_of_strings(test))
    return checker


def _of_strings(test: Callable[[str], bool]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or test(value)
