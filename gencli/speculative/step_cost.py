"""What a further token in a step costs."""

from __future__ import annotations

__all__ = ["StepCostModel"]

_FADING = 0.97  # of what a step said, with each step after it
_FEW = 8.0  # steps without which nothing is said
_ALIKE = 0.25  # squared tokens by which they differ; below that no line goes through them


class StepCostModel:
    """A line through the times of steps by their tokens, in which old steps fade; no clock is read here."""

    def __init__(self) -> None:
        self._steps = self._tokens = self._seconds = self._squares = self._products = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """A step fed so many tokens, and took so long."""
        self._steps = self._steps * _FADING + 1
        self._tokens = self._tokens * _FADING + tokens
        self._seconds = self._seconds * _FADING + seconds
        self._squares = self._squares * _FADING + tokens * tokens
        self._products = self._products * _FADING + tokens * seconds

    def of(self, lanes: int) -> float:
        """What a draft costs in a step of so many texts, where the token that each chooses anyway costs 1.

        0 if it comes for nothing, or nothing is known; 1 if a step takes as long as it has tokens. Drafts
        pay that stand more often than that.
        """
        spread = self._steps * self._squares - self._tokens**2
        if self._steps < _FEW or spread < _ALIKE * self._steps**2:
            return 0.0
        slope = (self._steps * self._products - self._tokens * self._seconds) / spread
        base = (self._seconds - slope * self._tokens) / self._steps
        if slope <= 0:
            return 0.0
        return slope * lanes / (max(base, 0.0) + slope * lanes)
