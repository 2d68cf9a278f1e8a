"""The specification of an output: its kind of structure, the plan that enforces it, and its reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gencli.core.request import Jump
from gencli.structured.plan import Plan

__all__ = ["DOCUMENTS", "KINDS", "OutputSpec"]

KINDS = ("json", "json_schema", "pydantic", "regex", "grammar", "lark", "choice", "structural_tag", "tools")
DOCUMENTS = ("json", "json_schema", "pydantic")  # kinds whose whole output is one JSON document


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The structure of every output of a run, the plan that enforces it, and how the text is used.

    `kind` is one of KINDS; `source`: short form of the option's value. `origin`: the layer that set it.
    `read` returns the value of a text; None for kinds without a value. `tools`: passed to the chat template.
    `notice`: for the user. `after`: the structure begins after this text. `has_answer`: an output of
    tools is calls or a document. `is_document`: no part of the output is free text. `has_formats`: the final
    check includes `format`. `retries`: number of further attempts for an invalid output. `is_partial`:
    invalid outputs are written too. `is_parsed`: a valid value is written as compact JSON; `select`: only its
    part at this JSON pointer. For the prompt: `schema` and `choices` as given, and
    `call_form`, how a call of the tools is written.
    """

    kind: str
    plan: Plan
    source: str = ""
    origin: str = ""
    read: Callable[[str], Any] | None = None
    notice: str = ""
    tools: tuple[Any, ...] = ()
    has_answer: bool = False
    after: str = ""
    is_document: bool = False
    has_formats: bool = False
    retries: int = 0
    is_partial: bool = False
    finish_open: bool = False
    jump: Jump = "auto"
    is_parsed: bool = False
    select: str | None = None
    schema: Any = None
    choices: tuple[str, ...] = ()
    call_form: str = ""

    @property
    def is_data(self) -> bool:
        """Whether results are for programs: written one after another, without labels."""
        return self.is_parsed or self.select is not None
