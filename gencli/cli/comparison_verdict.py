"""Checks comparisons against assertions and determines the exit code; a comparison as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gencli.explain.chain_comparison import Comparison, DivergenceSums, TextOf, summarize
from gencli.explain.page import CompareRow, Side, compare_page


class Verdict:
    """Counts comparisons. `limit`: largest total variation allowed at a position; None for any.

    A position at which B has no token exceeds every limit. A position without sufficient kept logits is
    undecided. `is_equal`: the texts have to be equal.
    """

    def __init__(self, limit: float | None, *, is_equal: bool) -> None:
        self._limit, self._is_equal = limit, is_equal
        self.texts = self.equal = self._different = self._unknown = 0
        self._failed = self._interrupted = self._over = 0
        self.summary = DivergenceSums()

    def add(self, comparison: Comparison) -> None:
        """Count a comparison."""
        self.texts += 1
        self.equal += comparison.is_equal is True
        self._unknown += comparison.is_equal is None
        self._different += comparison.is_equal is False
        outputs = [comparison.a, *([comparison.b] if comparison.b else [])]
        self._failed += any(output.error for output in outputs)
        self._interrupted += any(output.reason == "interrupted" for output in outputs)
        self.summary += summarize(comparison.places)
        if self._limit is not None:
            decided = (position for position in comparison.places if position.unmeasured != "kept")
            measured = [position.divergence for position in decided]
            self._over += sum(distance is None or distance.tv > self._limit for distance in measured)

    @property
    def _is_open(self) -> bool:
        is_short = self._limit is not None and self.summary.unmeasured["kept"] > 0
        return is_short or (self._is_equal and self._unknown > 0)

    def faults(self) -> Iterator[str]:
        """Yield failed assertions."""
        if self._failed:
            yield f"{self._failed} of {self.texts} texts failed."
        if self._is_equal and self._different:
            yield f"{self._different} of {self.texts} texts are not equal."
        if self._over:
            places = f"{self._over} of {self.summary.places} places"
            yield f"The total variation is above {self._limit:g} at {places}."
        if self._is_open:
            yield "Too few logits are kept to decide: keep more of them."

    @property
    def code(self) -> int:
        """130 if interrupted; 6 if an assertion fails or no text is complete; 7 if some are not, or open."""
        if self._interrupted:
            return 130
        if self._over or (self._is_equal and self._different) or self._failed == self.texts:
            return 6
        return 7 if self._failed or self._is_open else 0


def compared_page(comparison: Comparison, head: Mapping[str, Any], text_of: TextOf) -> str:
    """Return the page of a comparison; `head` has the chains of both sides.

    Only measured positions are included. `kl` is KL(A || B). Without B's own text, the second text consists
    of B's choice at each position of A's text.
    """
    along = [position.a if position.b is None else position.b for position in comparison.places]
    a, b = comparison.a.tokens, comparison.b.tokens if comparison.b else along
    chains = [head[key]["chain"] if head[key] else "that of the trace" for key in "ab"]
    sides = Side("A", chains[0], a), Side("B" if comparison.b else "B along A", chains[1], b)
    rows = list[CompareRow]()
    for position in comparison.places:
        if (distance := position.divergence) is not None:
            decided = dict.fromkeys((*position.decided_a, *position.decided_b)) if position.is_parted else ()
            rows.append(
                CompareRow(position.pos, distance.tv, distance.kl_ab, position.a, position.b, [*decided])
            )
    names = {token: text_of(token) or f"#{token}" for token in {*a, *b, *along}}
    return compare_page(comparison.prompt, sides, rows, names)
