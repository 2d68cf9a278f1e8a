"""`Constraint`: a grammar as text. Imports no torch, so that planning needs no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MAX_DEPTH", "MAX_EXPONENT", "MAX_NUMBER", "WHITESPACE", "Constraint", "GrammarKind"]

# Limits of JSON in outputs, which masks keep: no grammar knows them, and readers have some.
MAX_NUMBER = 128  # characters of a number
MAX_EXPONENT = 3  # digits of an exponent
MAX_DEPTH = 64  # lists and objects in each other
# A line break and nine levels of two blanks, or four of four. It bounds what a model wastes.
WHITESPACE = 20

GrammarKind = Literal["choice", "json_schema", "regex", "ebnf", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar as text, and the back end it is written for.

    Kinds: `choice` is a JSON list of texts; `json_schema` is JSON; `regex` matches the whole output; `ebnf`
    and `lark` are the dialects of xgrammar and llguidance. `whitespace` is the longest run of white space
    allowed in a JSON document, in characters.
    """

    kind: GrammarKind
    text: str
    backend: str
    whitespace: int = WHITESPACE
