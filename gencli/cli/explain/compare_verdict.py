"""Checks comparisons against assertions, and determines the exit code."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.explain.compare import Comparison, Place, Summary, summarize

__all__ = ["Verdict"]

_FAILED, _UNKNOWN, _INTERRUPTED = 6, 7, 130


class Verdict:
    """Counts comparisons. `most`: limit of the total variation at a position; None for no limit.

    A position at which B has no token exceeds every limit. A position without sufficient kept logits is
    undecided.
    """

    def __init__(self, most: float | None) -> None:
        self._most = most
        self.texts = self.equal = self._different = self._unknown = self._failed = self._interrupted = (
            self._over
        ) = 0
        self.summary = Summary()

    def add(self, one: Comparison) -> None:
        """Count a comparison."""
        self.texts += 1
        self.equal += one.is_equal is True
        self._unknown += one.is_equal is None
        self._different += one.is_equal is False
        outputs = [one.a, *([one.b] if one.b else [])]
        self._failed += any(output.error for output in outputs)
        self._interrupted += any(output.reason == "interrupted" for output in outputs)
        self._over += sum(self._is_over(place) for place in one.places)
        self.summary += summarize(one.places)

    def _is_over(self, place: Place) -> bool:
        if self._most is None or place.unmeasured == "kept":
            return False
        return place.divergence is None or place.divergence.tv > self._most

    def faults(self, *, is_equal: bool) -> Iterator[str]:
        """Yield failed assertions; `is_equal`: the texts have to be equal."""
        if self._failed:
            yield f"{self._failed} of {self.texts} texts failed."
        if is_equal and self._different:
            yield f"{self._different} of {self.texts} texts are not equal."
        if self._over:
            places = f"{self._over} of {self.summary.places} places"
            yield f"The total variation is above {self._most:g} at {places}."
        if self._is_open(is_equal):
            yield "The logits are not enough to tell: keep more of them."

    def code(self, *, is_equal: bool) -> int:
        """Return 6 if an assertion fails or no text is complete, 7 if a text is incomplete or undecided."""
        if self._interrupted:
            return _INTERRUPTED
        if self._over or (is_equal and self._different) or self._failed == self.texts:
            return _FAILED
        return _UNKNOWN if self._failed or self._is_open(is_equal) else 0

    def _is_open(self, is_equal: bool) -> bool:
        return (is_equal and self._unknown > 0) or (
            self._most is not None and self.summary.unmeasured["kept"] > 0
        )
