"""Comparisons as JSON (docs/compare.schema.json): a record for each prompt, and the totals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gencli.explain.compare import Comparison, Output, Place, Summary, summarize
from gencli.explain.record import significant

__all__ = ["TextOf", "comparison_record", "summary_record"]

TextOf = Callable[[int], str | None]  # returns the text of a token id; None if unknown


def comparison_record(found: Comparison, text_of: TextOf) -> dict[str, Any]:
    """Return the record of a prompt.

    Tokens are [id, text]; an infinite KL divergence is null while `tv` is a number.
    """
    return {
        "id": found.id,
        "prompt": found.prompt,
        "equal": found.is_equal,
        "parted_at": found.parted_at,
        "a": _output(found.a, text_of),
        "b": None if found.b is None else _output(found.b, text_of),
        "places": [_place(place, text_of) for place in found.places],
        "summary": summary_record(summarize(found.places)),
    }


def _output(output: Output, text_of: TextOf) -> dict[str, Any]:
    return {
        "text": output.text,
        "finish_reason": output.reason,
        "tokens": [[token, text_of(token)] for token in output.tokens],
        "error": output.error or None,
    }


def _place(place: Place, text_of: TextOf) -> dict[str, Any]:
    apart = place.divergence
    return {
        "pos": place.pos,
        "a": [place.a, text_of(place.a)],
        "b": None if place.b is None else [place.b, text_of(place.b)],
        "parted": place.is_parted,
        "tv": None if apart is None else significant(apart.tv),
        "kl_ab": None if apart is None else significant(apart.kl_ab),
        "kl_ba": None if apart is None else significant(apart.kl_ba),
        "decided_by_a": list(place.decided_a),
        "decided_by_b": list(place.decided_b),
        "unmeasured": place.unmeasured,
    }


def summary_record(summary: Summary) -> dict[str, Any]:
    """Return the totals over positions as JSON."""
    means = ("tv_mean", "kl_ab_mean", "kl_ba_mean")
    rounded = {key: None if (mean := getattr(summary, key)) is None else significant(mean) for key in means}
    return {
        "places": summary.places,
        "measured": summary.measured,
        "parted": summary.parted,
        "tv_max": significant(summary.tv_max) if summary.measured else None,
        **rounded,
        "infinite_ab": summary.infinite_ab,
        "infinite_ba": summary.infinite_ba,
        "decided_a": dict(summary.decided_a),
        "decided_b": dict(summary.decided_b),
        "unmeasured": dict(summary.unmeasured),
    }
