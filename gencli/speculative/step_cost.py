"""The cost of one more token in a step."""

from __future__ import annotations

__all__ = ["StepCostModel"]

_DECAY = 0.97  # weight of a step relative to the step after it
_MIN_STEPS = 8.0  # weighted number of steps below which the cost is unknown
_MIN_VARIANCE = 0.25  # of the tokens per step, in tokens squared; below it the slope is undetermined


class StepCostModel:
    """Step time as a linear function of the tokens fed: t(n) = base + slope * n, in seconds.

    Least squares over past steps, exponentially weighted (decay 0.97 per step). Reads no clock.
    """

    def __init__(self) -> None:
        self._steps = self._tokens = self._seconds = self._squares = self._products = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Add a step that fed `num_tokens` tokens in `seconds`."""
        self._steps = self._steps * _DECAY + 1
        self._tokens = self._tokens * _DECAY + num_tokens
        self._seconds = self._seconds * _DECAY + seconds
        self._squares = self._squares * _DECAY + num_tokens * num_tokens
        self._products = self._products * _DECAY + num_tokens * seconds

    def draft_cost(self, batch_size: int) -> float:
        """Cost of one draft token relative to one token of a plain step of `batch_size` texts, in 0..1.

        slope * batch_size / (base + slope * batch_size); 0 while it is unknown. A draft token pays if its
        acceptance probability exceeds this cost.
        """
        spread = self._steps * self._squares - self._tokens**2
        if self._steps < _MIN_STEPS or spread < _MIN_VARIANCE * self._steps**2:
            return 0.0
        slope = (self._steps * self._products - self._tokens * self._seconds) / spread
        base = (self._seconds - slope * self._tokens) / self._steps
        if slope <= 0:
            return 0.0
        return slope * batch_size / (max(base, 0.0) + slope * batch_size)
