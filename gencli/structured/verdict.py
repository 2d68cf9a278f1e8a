"""Whether a finished text is what was asked for. It is looked at anew, whatever the mask did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gencli.config.options.structure import DOCUMENTS
from gencli.config.structure import OutputSpec
from gencli.core.events import Finish
from gencli.errors import GencliError
from gencli.structured.schema.select import compact, select
from gencli.structured.thinking import split_thinking

__all__ = ["OutputValidator", "ValidationResult"]


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What was found: the faults, none if the text is valid; its value, if it is JSON; how it is written.

    `thinking` is what stood before the result, None where nothing was to. `attempts` counts the draws.
    """

    faults: tuple[str, ...] = ()
    value: Any = None
    written: str = ""
    thinking: str | None = None
    attempts: int = 1

    @property
    def is_valid(self) -> bool:
        """Whether it is what was asked for."""
        return not self.faults


class OutputValidator:
    """Judges the texts of a run; without a structure it knows only whether a grammar was left open."""

    def __init__(self, structure: OutputSpec | None) -> None:
        self._structure = structure
        self._faults = _value_check(structure)

    def __call__(self, finish: Finish) -> Finish:
        """The end of a sample with its verdict; as it is where nothing was asked of it."""
        if finish.document is None and self._structure is None:
            return finish
        after = self._structure.after if self._structure else ""
        pieces = split_thinking(finish.text, after) if after else None
        text = pieces.rest if pieces else finish.text
        verdict = replace(self._judge(text, finish), thinking=pieces.thinking if pieces else None)
        return replace(finish, text=text, verdict=verdict)

    def _judge(self, text: str, finish: Finish) -> ValidationResult:
        if fault := _cut(finish, self._structure):
            return ValidationResult((fault,), written=text)
        structure = self._structure
        if structure is None:
            return ValidationResult(written=text)
        try:
            value = structure.read(text) if structure.read else None
            faults = self._faults(value)
            if not faults and structure.plan.check is not None:
                faults = structure.plan.check.faults(text)
            return ValidationResult(faults, value, text if faults else _written(value, text, structure))
        except GencliError as error:
            return ValidationResult((error.message,), written=text)


def _value_check(structure: OutputSpec | None) -> Callable[[Any], tuple[str, ...]]:
    if structure is None or structure.kind not in DOCUMENTS:
        return lambda value: ()
    from gencli.structured.schema.validate import Validator

    return Validator(structure.plan.schema, structure.has_formats).faults


def _written(value: Any, text: str, structure: OutputSpec) -> str:
    if structure.select is not None:
        return select(value, structure.select)
    return compact(value) if structure.is_parsed else text


def _cut(finish: Finish, structure: OutputSpec | None) -> str:
    """Why the text ends before the grammar says so; empty if it does not."""
    if finish.document not in (None, "open", "free"):
        return ""
    place = "before it was complete"
    if structure and structure.after and finish.document != "open":
        place = f"before {structure.after!r}, behind which the result begins"
    if finish.reason != "length":
        return f"it ended {place} ({finish.reason})"
    flag = {"max_tokens": "--max-tokens", "max_time": "--max-time"}.get(str(finish.matched))
    return f"{flag} cut it {place}; raise it" if flag else f"the context ended {place}; shorten the prompt"
