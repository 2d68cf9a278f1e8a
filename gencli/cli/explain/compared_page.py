"""A comparison as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.explain.compare import Comparison, Place
from gencli.explain.compare_record import TextOf
from gencli.explain.page import CompareRow, Side, compare_page

__all__ = ["compared_page"]


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


def _row(place: Place) -> CompareRow:
    assert place.divergence is not None
    decided = dict.fromkeys((*place.decided_a, *place.decided_b)) if place.is_parted else ()
    return CompareRow(place.pos, place.divergence.tv, place.divergence.kl_ab, place.a, place.b, [*decided])
