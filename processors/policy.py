"""`Verification`: the policy by which draft tokens are verified. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MATCH", "Policy", "Verification"]

Policy = Literal["match", "rejection", "lossy-typical", "lossy-threshold"]


@dataclass(frozen=True, slots=True)
class Verification:
    """Policy of verification; `threshold` > 0 is the lowest probability that lossy-threshold accepts."""

    policy: Policy = "match"
    threshold: float = 0.3

    @property
    def is_lossy(self) -> bool:
        """Whether the policy changes the distribution of the output."""
        return self.policy.startswith("lossy")


MATCH = Verification()
