"""The specification of an output: its kind of structure, the plan that enforces it, how its text is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gencli.core.request import Jump
from gencli.structured.plan import Plan

__all__ = ["DOCUMENTS", "KINDS", "OutputSpec"]

KINDS = ("json", "json_schema", "pydantic", "regex", "grammar", "lark", "choice", "structural_tag", "tools")
DOCUMENTS = ("json", "json_schema", "pydantic")  # the kinds whose whole output is one JSON document


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The structure of every output of a run, the plan that enforces it, and the use of the text.

    `kind` is one of KINDS; `source` is a short form of the value that was given for it, `origin` the layer of
    options that gave it. `read` returns the value of a text; None for kinds without a value. `tools` are put
    into the chat template. `notice` is for the user. The output is free up to the end of the text `after`.
    `is_document`: no part of the output is free text. `has_formats`: the final check looks at `format`.
    `retries` is the number of further draws for an output that is not valid. `is_partial`: outputs that are
    not valid are written too. `is_parsed` and `select` say how a valid value is written: as compact JSON, or
    the part at a JSON pointer.
    """

    kind: str
    plan: Plan
    source: str = ""
    origin: str = ""
    read: Callable[[str], Any] | None = None
    notice: str = ""
    tools: tuple[Any, ...] = ()
    after: str = ""
    is_document: bool = False
    has_formats: bool = False
    retries: int = 0
    is_partial: bool = False
    finish_open: bool = False
    jump: Jump = "auto"
    is_parsed: bool = False
    select: str | None = None

    @property
    def is_data(self) -> bool:
        """Whether results are for programs: written one after the other, without labels."""
        return self.is_parsed or self.select is not None
