"""Plans: the variants of a constraint, best first, and the keywords that each enforces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from processors.constraint import Constraint

__all__ = ["UNIQUE_NAMES", "Audit", "Enforcement", "Finding", "Plan", "TextCheck", "Variant"]

Enforcement = Literal["mask", "check", "unknown"]
UNIQUE_NAMES = "unique names"  # required by JSON, not by a keyword


@dataclass(frozen=True, slots=True)
class Finding:
    """One keyword of a schema: enforced by the mask, enforced by the final check, or unknown.

    `pointer`: JSON pointer of the keyword in the given schema. `reason`: why the mask does not enforce the
    keyword, or how it was rewritten so that it does.
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
    """A constraint in the form for one back end, and the keywords that the back end enforces."""

    constraint: Constraint
    audit: Audit


class TextCheck(Protocol):
    """Interface of a check whether a finished text has the requested structure."""

    def faults(self, text: str) -> tuple[str, ...]:
        """Return the faults of the text, one sentence each; () if it is valid."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The variants, best first, and the reason for their order.

    `schema`: schema that validates finished documents; None if the output is not a JSON document. `check`:
    validates the finished text; None if the mask or `schema` suffices. `seconds`: time left for compiling.
    """

    variants: tuple[Variant, ...]
    reason: str = ""
    schema: Any = None
    check: TextCheck | None = None
    seconds: float = math.inf
