"""What is planned for a constraint: the forms it can run in, best first, and what each of them enforces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from gencli.structured.finish import TextCheck
from processors.constraint import Constraint

__all__ = ["UNIQUE_NAMES", "Audit", "Enforcement", "Finding", "Plan", "Variant"]

Enforcement = Literal["mask", "check", "unknown"]
UNIQUE_NAMES = "unique names"  # what no keyword asks for, and JSON does


@dataclass(frozen=True, slots=True)
class Finding:
    """One keyword at one place of a schema: enforced by the mask, by the final check, or not understood.

    `pointer` is the JSON pointer of the keyword in the schema as it was given; `reason` says why it is not
    the mask, or how the schema was rewritten so that it is.
    """

    pointer: str
    keyword: str
    verdict: Enforcement
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """What a back end makes of a schema, keyword by keyword."""

    backend: str
    findings: tuple[Finding, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the mask enforces all of it."""
        return all(finding.verdict == "mask" for finding in self.findings)

    @property
    def open(self) -> tuple[Finding, ...]:
        """What the mask leaves to the final check, or to nobody."""
        return tuple(finding for finding in self.findings if finding.verdict != "mask")


@dataclass(frozen=True, slots=True)
class Variant:
    """A form that the constraint can run in: the text for a back end, and what that enforces."""

    constraint: Constraint
    audit: Audit


@dataclass(frozen=True, slots=True)
class Plan:
    """The variants in the order in which they are tried, and why that order.

    `schema` is what finished documents are validated against; None if the text is no JSON document.
    `check` is what other finished texts are validated with; None if the mask alone decides.
    `seconds` are left to compile one of the variants.
    """

    variants: tuple[Variant, ...]
    reason: str = ""
    schema: Any = None
    check: TextCheck | None = None
    seconds: float = math.inf
