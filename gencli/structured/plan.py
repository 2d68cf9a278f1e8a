"""Plans: the variants of a constraint, best first, and what each of them enforces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from processors.constraint import Constraint

__all__ = ["UNIQUE_NAMES", "Audit", "Enforcement", "Finding", "Plan", "TextCheck", "Variant"]

Enforcement = Literal["mask", "check", "unknown"]
UNIQUE_NAMES = "unique names"  # required by JSON, by no keyword


@dataclass(frozen=True, slots=True)
class Finding:
    """One keyword of a schema: enforced by the mask, enforced by the final check, or unknown.

    `pointer` is the JSON pointer of the keyword in the schema as it was given. `reason` says why the mask
    does not enforce it, or how it was rewritten so that the mask does.
    """

    pointer: str
    keyword: str
    verdict: Enforcement
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings for one back end, keyword by keyword."""

    backend: str
    findings: tuple[Finding, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the mask enforces every keyword."""
        return all(finding.verdict == "mask" for finding in self.findings)

    @property
    def open(self) -> tuple[Finding, ...]:
        """The keywords that the mask does not enforce."""
        return tuple(finding for finding in self.findings if finding.verdict != "mask")


@dataclass(frozen=True, slots=True)
class Variant:
    """A constraint in the form for one back end, and what that enforces."""

    constraint: Constraint
    audit: Audit


class TextCheck(Protocol):
    """Decides whether a finished text is what the structure asks for."""

    def faults(self, text: str) -> tuple[str, ...]:
        """Return the faults of the text, one sentence each; () if it is valid."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The variants in the order in which they are tried, and the reason for the order.

    `schema` is the schema that finished documents are validated against; None if the output is no JSON
    document. `check` validates the finished text; None if the mask or `schema` suffices. `seconds` remain for
    compiling.
    """

    variants: tuple[Variant, ...]
    reason: str = ""
    schema: Any = None
    check: TextCheck | None = None
    seconds: float = math.inf
