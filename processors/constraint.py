"""A grammar as text. Imports no torch, so that plans can be made before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Constraint", "GrammarKind"]

GrammarKind = Literal["choice", "json_schema", "regex", "ebnf", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar as text, and the back end it is written for.

    `choice` is a JSON list of texts, `json_schema` a JSON text, `regex` matches the whole output; `ebnf`
    and `lark` are the dialects of xgrammar and llguidance. `whitespace` is the most characters of white
    space that a JSON document may have in one place.
    """

    kind: GrammarKind
    text: str
    backend: str
    whitespace: int = 8
