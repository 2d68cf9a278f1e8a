"""What a probe is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jsonschema.validators import validator_for

__all__ = ["Probe", "judged", "texts_of", "validator_of"]


@dataclass(frozen=True)
class Probe:
    """Texts that a schema allows and texts that it refuses, to find out what a back end makes of `shape`.

    Texts are given as `allowed` and `refused`, or as `values`, which jsonschema sorts when it is asked: the
    thousand probes are built where tests are collected.
    """

    shape: str
    schema: Any
    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    @cached_property
    def accept(self) -> tuple[str, ...]:
        return self.allowed + self._judged(True)

    @cached_property
    def refuse(self) -> tuple[str, ...]:
        return self.refused + self._judged(False)

    def _judged(self, is_valid: bool) -> tuple[str, ...]:
        if not self.values:
            return ()
        validator = validator_of(self.schema)
        return tuple(texts_of(value) for value in self.values if validator.is_valid(value) is is_valid)


def texts_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def validator_of(schema: Any) -> Any:
    """jsonschema's validator of the draft that the schema declares, else of the latest."""
    return validator_for(schema, default=validator_for({"$schema": _LATEST}))(schema)


def judged(shape: str, schema: Any, *values: Any) -> Probe:
    """A probe whose instances jsonschema sorts."""
    return Probe(shape, schema, values=values)


_LATEST = "https://json-schema.org/draft/2020-12/schema"
