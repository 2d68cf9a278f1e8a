"""What steps and drafts were seen to take and to give. Quartiles and fading counts; no clock is read here."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

__all__ = ["Acceptance", "Costs"]

_SEEN = 7  # measurements that are remembered of each kind
_FEW = 3  # plain steps without which nothing is said about their cost


class Costs:
    """Seconds of plain steps by the number of texts in them, and of all else as multiples of those.

    A cost is the lower quartile of what was measured: what else the machine does makes steps slower, never
    faster.
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._verify: dict[int, deque[float]] = {}  # by the drafts of a text on average
        self._draft: deque[float] = deque(maxlen=_SEEN)

    def plain(self, lanes: int) -> float | None:
        """Seconds of a step without drafts; None while that is not known for about so many texts."""
        known = [n for n, seen in self._plain.items() if len(seen) >= _FEW and abs(n - lanes) <= lanes / 4]
        return _usual(self._plain[min(known, key=lambda n: abs(n - lanes))]) if known else None

    def verify(self, drafts: float) -> float:
        """What more a step takes with so many drafts a text; as with the nearest number that was tried.

        It is no more than what a larger number was seen to take.
        """
        if not self._verify:
            return 0.0
        nearest = min(self._verify, key=lambda n: abs(n - drafts))
        return min(_usual(seen) for n, seen in self._verify.items() if n >= nearest)

    @property
    def draft(self) -> float | None:
        """What a draft takes, or where all come at once, all of them; None before the first."""
        return _usual(self._draft) if self._draft else None

    def add_plain(self, lanes: int, seconds: float) -> None:
        """A step without drafts."""
        self._plain.setdefault(lanes, deque(maxlen=_SEEN)).append(seconds)

    def add_verify(self, drafts: float, extra: float, *, longest: int) -> None:
        """A step with so many drafts a text, and with so many in the text that had the most.

        Fed one after the other they would take a plain step each; what is beyond that is none of theirs.
        """
        self._verify.setdefault(round(drafts), deque(maxlen=_SEEN)).append(min(max(extra, 0.0), longest))

    def add_draft(self, cost: float) -> None:
        """A draft, or all at once."""
        self._draft.append(cost)


class Acceptance:
    """How often a draft stands behind drafts that stand. Old trials fade by `fading` with each new one.

    `weight` trials at a rate of `prior` come before the first.
    """

    def __init__(self, *, weight: float, fading: float) -> None:
        self._weight, self._fading = weight, fading
        self._trials, self._hits = 0.0, 0.0

    def add(self, *, proposed: int, accepted: int) -> None:
        """The drafts behind the first that fell are no trials."""
        for place in range(min(accepted + 1, proposed)):
            self._trials = self._trials * self._fading + 1
            self._hits = self._hits * self._fading + (place < accepted)

    def rate(self, prior: float) -> float:
        """Between 0 and 1."""
        return (self._hits + self._weight * prior) / (self._trials + self._weight)


def _usual(seen: Collection[float]) -> float:
    return sorted(seen)[len(seen) // 4]
