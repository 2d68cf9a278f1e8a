"""What a probe is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from jsonschema.validators import validator_for

__all__ = ["Probe", "judged", "texts_of", "validator_of"]


@dataclass(frozen=True)
class Probe:
    """Texts that a schema allows and texts that it refuses, to find out what a back end makes of `shape`."""

    shape: str
    schema: Any
    accept: tuple[str, ...]
    refuse: tuple[str, ...]


def texts_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def validator_of(schema: Any) -> Any:
    """jsonschema's validator of the draft that the schema declares, else of the latest."""
    return validator_for(schema, default=validator_for({"$schema": _LATEST}))(schema)


def judged(shape: str, schema: Any, *values: Any) -> Probe:
    """A probe whose instances jsonschema has sorted."""
    validator = validator_of(schema)
    sorted_ = {is_valid: [] for is_valid in (True, False)}
    for value in values:
        sorted_[validator.is_valid(value)].append(texts_of(value))
    return Probe(shape, schema, tuple(sorted_[True]), tuple(sorted_[False]))


_LATEST = "https://json-schema.org/draft/2020-12/schema"
