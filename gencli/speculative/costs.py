"""Measured costs of steps and drafts, and acceptance rates. Reads no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

__all__ = ["Acceptance", "Costs"]

_MEMORY = 7  # latest measurements kept of each kind
_MIN_PLAIN = 3  # plain steps; with fewer their cost is unknown


class Costs:
    """Time of plain steps in seconds, by batch size, and costs of drafting in plain steps.

    Each cost is the lower quartile of the latest measurements, since other load only makes steps slower.
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._verify: dict[int, deque[float]] = {}  # by mean number of draft tokens per text
        self._draft: deque[float] = deque(maxlen=_MEMORY)

    def plain(self, lanes: int) -> float | None:
        """Seconds of a plain step; None if unknown for batch sizes within 25 % of `lanes`."""
        known = [
            n for n, seen in self._plain.items() if len(seen) >= _MIN_PLAIN and abs(n - lanes) <= lanes / 4
        ]
        return _lower_quartile(self._plain[min(known, key=lambda n: abs(n - lanes))]) if known else None

    def verify(self, drafts: float) -> float:
        """Extra time of a step with `drafts` draft tokens per text, in plain steps.

        That of the nearest measured number, and at most that of any larger one.
        """
        if not self._verify:
            return 0.0
        nearest = min(self._verify, key=lambda n: abs(n - drafts))
        return min(_lower_quartile(seen) for n, seen in self._verify.items() if n >= nearest)

    @property
    def draft(self) -> float | None:
        """Cost of drafting as `add_draft` takes it, in plain steps; None before the first."""
        return _lower_quartile(self._draft) if self._draft else None

    def add_plain(self, lanes: int, seconds: float) -> None:
        """Record the time of a plain step."""
        self._plain.setdefault(lanes, deque(maxlen=_MEMORY)).append(seconds)

    def add_verify(self, drafts: float, extra: float, *, longest: int) -> None:
        """Record the extra time of a step, in plain steps, with `drafts` draft tokens per text on average.

        `longest`: most draft tokens of a text. It limits the cost: fed one by one, they take a plain step
        each.
        """
        self._verify.setdefault(round(drafts), deque(maxlen=_MEMORY)).append(min(max(extra, 0.0), longest))

    def add_draft(self, cost: float) -> None:
        """Record the cost of drafting: of one token if the drafter is autoregressive, else of all."""
        self._draft.append(cost)


class Acceptance:
    """Acceptance rate of a draft token, given that those before it were accepted.

    Each new trial multiplies the weight of older ones by `fading`. The prior has the weight of `weight`
    trials.
    """

    def __init__(self, *, weight: float, fading: float) -> None:
        self._weight, self._fading = weight, fading
        self._trials, self._hits = 0.0, 0.0

    def add(self, *, proposed: int, accepted: int) -> None:
        """Count one run of drafts. Tokens after the first rejected one are not trials."""
        for position in range(min(accepted + 1, proposed)):
            self._trials = self._trials * self._fading + 1
            self._hits = self._hits * self._fading + (position < accepted)

    def rate(self, prior: float) -> float:
        """The acceptance rate in 0..1: (hits + weight * prior) / (trials + weight)."""
        return (self._hits + self._weight * prior) / (self._trials + self._weight)


def _lower_quartile(seen: Collection[float]) -> float:
    return sorted(seen)[len(seen) // 4]
