"""A comparison as the output of a notebook's cell: both texts, and where the chains choose differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gencli.explain.page.fragment import Piece, facts, fragment, lanes, legend, named_id, table, text

if TYPE_CHECKING:
    from gencli.explain.compare import Comparison, Place, Summary

__all__ = ["compared_fragment"]

_BOUNDS = (0.05, 0.2, 0.5)  # of total variation, between the levels
_LEGEND = ("total variation up to .05", ".05 to .2", ".2 to .5", "above .5")


def compared_fragment(one: Comparison, sums: Summary) -> str:
    """Return the comparison as HTML. Without B's own text only A's is shown."""
    mean = "" if sums.tv_mean is None else f"total variation {sums.tv_mean:.3g} on average"
    where = "" if one.parted_at is None else f"the texts part at token {one.parted_at}"
    sides = [_side("A", one.prompt, _pieces(one), one.a.reason, one.a.error)]
    if one.b is not None:
        names = [one.names.get(token) or f"⟨id {token}⟩" for token in one.b.tokens]
        other = (Piece(name, parts=at == one.parted_at) for at, name in enumerate(names))
        sides.append(_side("B", one.prompt, other, one.b.reason, one.b.error))
    rows = [_row(one, place) for place in one.places if place.is_parted]
    head = ("token", "A", "B", "total variation", "decided by")
    return fragment(
        facts(f"{sums.parted} of {sums.places} tokens chosen differently", mean, where),
        legend(_LEGEND),
        lanes(*sides),
        table(f"Where the chains choose differently: {len(rows)}", head, rows),
    )


def _side(title: str, prompt: str, found: Iterator[Piece], reason: str, error: str) -> str:
    return facts(title, reason, error) + text(prompt, found)


def _pieces(one: Comparison) -> Iterator[Piece]:
    """Yield A's tokens, coloured by how far the chains are apart there."""
    places = {place.pos: place for place in one.places}
    for at, token in enumerate(one.a.tokens):
        place, name = places.get(at), one.names.get(token) or f"⟨id {token}⟩"
        if place is None or place.divergence is None:
            yield Piece(name, parts=at == one.parted_at)
            continue
        tv = place.divergence.tv
        said = f"total variation {tv:.3g}" + (f"; B chooses {_name(one, place.b)}" if place.is_parted else "")
        yield Piece(name, sum(tv > bound for bound in _BOUNDS), said, at == one.parted_at)


def _row(one: Comparison, place: Place) -> Sequence[str]:
    decided = ", ".join(dict.fromkeys((*place.decided_a, *place.decided_b)))
    tv = "-" if place.divergence is None else f"{place.divergence.tv:.3g}"
    return str(place.pos), _name(one, place.a), _name(one, place.b), tv, decided or "-"


def _name(one: Comparison, token: int | None) -> str:
    return named_id(token, one.names.get(token) if token is not None else None)
