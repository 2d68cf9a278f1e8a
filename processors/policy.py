"""How drafts are verified, as a value. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MATCH", "Policy", "Verification"]

Policy = Literal["match", "rejection", "lossy-typical", "lossy-threshold"]


@dataclass(frozen=True, slots=True)
class Verification:
    """How drafts are verified; `threshold` > 0 is the least probability that lossy-threshold accepts."""

    policy: Policy = "match"
    threshold: float = 0.3

    @property
    def is_lossy(self) -> bool:
        """Whether texts come out that the model would not have drawn, or seldom."""
        return self.policy.startswith("lossy")


MATCH = Verification()
