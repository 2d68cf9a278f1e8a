"""Checks comparisons against assertions and determines the exit code; a comparison as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gencli.explain.chain_comparison import ComparedPlace, Comparison, Summary, TextOf, summarize
from gencli.explain.page import CompareRow, Side, compare_page

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

    def _is_over(self, place: ComparedPlace) -> bool:
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


def compared_page(one: Comparison, head: Mapping[str, Any], text_of: TextOf) -> str:
    """Return the page of a comparison; `head` has the chains of both sides.

    Only measured positions are included. `kl` is KL(A || B). Without B's own text, the second text consists
    of B's choice at each position of A's text.
    """
    along = [place.a if place.b is None else place.b for place in one.places]
    other = one.b.tokens if one.b else along
    sides = [
        Side(title, head[key]["chain"] if head[key] else "that of the trace", tokens)
        for title, key, tokens in (("A", "a", one.a.tokens), ("B" if one.b else "B along A", "b", other))
    ]
    rows = [_row(place) for place in one.places if place.divergence is not None]
    ids = {*one.a.tokens, *other, *along}
    names = {token: text_of(token) or f"#{token}" for token in ids}
    return compare_page(one.prompt, (sides[0], sides[1]), rows, names)


def _row(place: ComparedPlace) -> CompareRow:
    assert place.divergence is not None
    decided = dict.fromkeys((*place.decided_a, *place.decided_b)) if place.is_parted else ()
    return CompareRow(place.pos, place.divergence.tv, place.divergence.kl_ab, place.a, place.b, [*decided])
