"""Validation of finished texts against the output specification, independent of the mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gencli.core.events import Finish, ValidationResult
from gencli.errors import GencliError
from gencli.structured.output_spec import DOCUMENTS, OutputSpec
from gencli.structured.validate.select import compact, select
from gencli.structured.validate.thinking import split_thinking

__all__ = ["OutputValidator"]


class OutputValidator:
    """Validates the texts of a run; without a specification it only reports an unfinished grammar."""

    def __init__(self, spec: OutputSpec | None) -> None:
        self._spec = spec
        self._faults = _value_check(spec)

    def __call__(self, finish: Finish, marker: str = "") -> Finish:
        """Return the event with its verdict; unchanged if there is nothing to validate.

        The text up to `marker` is reasoning.
        """
        if finish.document is None and self._spec is None:
            return finish
        pieces = split_thinking(finish.text, marker) if marker else None
        text = pieces.rest if pieces else finish.text
        fault = _cut(finish, self._spec)
        verdict = ValidationResult((fault,), written=text) if fault else self.validate(text)
        verdict = replace(verdict, thinking=pieces.thinking if pieces else None)
        return replace(finish, text=text, verdict=verdict)

    def validate(self, text: str) -> ValidationResult:
        """Validate a complete text from the end of the marker `after` on."""
        spec = self._spec
        if spec is None:
            return ValidationResult(written=text)
        try:
            value = spec.read(text) if spec.read else None
            faults = self._faults(value)
            if not faults and spec.plan.check is not None:
                faults = spec.plan.check.faults(text)
            return ValidationResult(faults, value, text if faults else _written(value, text, spec))
        except GencliError as error:
            return ValidationResult((error.message,), written=text)


def _value_check(spec: OutputSpec | None) -> Callable[[Any], tuple[str, ...]]:
    if spec is None or spec.kind not in DOCUMENTS:
        return lambda value: ()
    from gencli.structured.validate.validator import Validator

    return Validator(spec.plan.schema, spec.has_formats).faults


def _written(value: Any, text: str, spec: OutputSpec) -> str:
    if spec.select is not None:
        return select(value, spec.select)
    return compact(value) if spec.is_parsed else text


def _cut(finish: Finish, spec: OutputSpec | None) -> str:
    """Return why the text ends before its grammar does; "" if it does not."""
    if finish.document not in (None, "open", "free"):
        return ""
    place = "before it was complete"
    if spec and spec.after and finish.document != "open":
        place = f"before {spec.after!r}, behind which the result begins"
    if finish.reason != "length":
        return f"it ended {place} ({finish.reason})"
    if finish.matched in ("max_tokens", "max_time"):
        return f"`{finish.matched}` cut it {place}; raise it"
    return f"the context ended {place}; shorten the prompt"
