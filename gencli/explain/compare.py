"""Two chains on one text: where they diverge, and the distances of their distributions.

A's text is the given one. At each position the chain B gets the same logits, the same preceding tokens and
the same noise. No tensor [T, V] is stored: each row of logits is measured when it arrives.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import fsum
from typing import Literal

import torch
from torch import Tensor

from gencli.explain.replay import Look, Replay
from gencli.text.escapes import shown
from processors.explain.divergence import Divergence, divergence
from processors.explain.kept import KeptLogits

__all__ = ["Comparison", "Output", "Place", "SideBySide", "Summary", "Unmeasured", "summarize"]

# Why a position has no measures: the kept logits do not suffice; B masks every token; B's grammar forbids A's
# text before the position.
Unmeasured = Literal["kept", "empty", "grammar"]


@dataclass(frozen=True, slots=True)
class Place:
    """One token of A's text, at output position `pos`, and B's choice there.

    `a`: the text's id. `b`: B's id, None without measures. `decided_a`, `decided_b`: stages without which the
    same draw of the chain gives another token; `decided_b` is computed only where B chooses another token.
    """

    pos: int
    a: int
    b: int | None
    decided_a: tuple[str, ...]
    decided_b: tuple[str, ...] = ()
    divergence: Divergence | None = None
    unmeasured: Unmeasured | None = None

    @property
    def is_parted(self) -> bool:
        """Whether B chooses another token."""
        return self.b is not None and self.b != self.a


class SideBySide:
    """Runs two chains along A's text from its first token. Both are Replays that begin there."""

    def __init__(self, a: Replay, b: Replay) -> None:
        self._a, self._b = a, b
        self._pos, self._is_lost = 0, False

    def place(
        self,
        token: int,
        kept: KeptLogits,
        decided_by: Iterable[str] | None = None,
        *,
        other: KeptLogits | None = None,
    ) -> Place:
        """Return the next position's Place, where A's text has `token`.

        `decided_by`: the stages that decided the token; computed if None. `other`: B's logits, if they come
        from another model. The distribution of a greedy draw is its token alone. A position has measures only
        if A chooses the text's token; otherwise the logits or the chain do not belong to the text.
        """
        if decided_by is None:
            decided_by = self._a.explain(kept, token).decided_by
        place = Place(self._pos, token, None, tuple(decided_by))
        found = self._measured(place, kept, kept if other is None else other)
        if not self._is_lost:
            self._is_lost = not self._b.follows(token)
        if not self._is_lost:
            self._b.commit(token)
        self._a.commit(token)
        self._pos += 1
        return found

    def _measured(self, place: Place, kept: KeptLogits, other: KeptLogits) -> Place:
        """Return the place with B's choice and the measures."""
        if self._is_lost:
            return replace(place, unmeasured="grammar")
        a, b = self._a.look(kept), self._b.look(other)
        if not (a.is_exact and b.is_exact and a.token == place.a):
            return replace(place, unmeasured="kept")
        if b.token < 0:
            return replace(place, unmeasured="empty")
        place = replace(place, b=b.token, divergence=divergence(_drawn(a, self._a), _drawn(b, self._b)))
        if not place.is_parted:
            return place
        return replace(place, decided_b=self._b.explain(other, b.token).decided_by)


def _drawn(look: Look, replay: Replay) -> Tensor:
    """Return the logits [V] of the distribution that is sampled."""
    if replay.run.draw != "greedy":
        return look.logits
    alone = torch.full_like(look.logits, -torch.inf)
    alone[look.token] = 0.0
    return alone


@dataclass(frozen=True, slots=True)
class Output:
    """A side's text: token ids, text, and why it ended; `error` if it failed."""

    tokens: tuple[int, ...]
    text: str
    reason: str
    error: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """A prompt with A's text, its positions, and the text of B's own run; None if B was not run.

    `names`: the texts of token ids, as far as they are known. A notebook shows the two texts.
    """

    id: str
    prompt: str
    a: Output
    b: Output | None
    places: tuple[Place, ...]
    names: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def parted_at(self) -> int | None:
        """The first position at which the two texts have different tokens, or only one has a token.

        Without B's own text: the first position at which B chooses another token. None if there is none.
        """
        if self.b is None:
            return next((place.pos for place in self.places if place.is_parted), None)
        a, b = self.a.tokens, self.b.tokens
        length = min(len(a), len(b))
        first = next((pos for pos in range(length) if a[pos] != b[pos]), length)
        return None if first == len(a) == len(b) else first

    @property
    def is_equal(self) -> bool | None:
        """Whether both texts are equal; None if the kept logits do not suffice to tell."""
        if self.b is not None:
            return self.parted_at is None and self.a.text == self.b.text
        if any(place.a != place.b and place.unmeasured != "kept" for place in self.places):
            return False
        return None if any(place.unmeasured for place in self.places) else True

    def __repr__(self) -> str:
        count = sum(place.is_parted for place in self.places)
        said = f"{len(self.a.tokens)} tokens, {count} chosen differently, parted_at={self.parted_at}"
        return f"Comparison(prompt={shown(self.prompt)}, {said})"

    def _repr_html_(self) -> str:
        from gencli.explain.page.compared import compared_fragment  # only for those who look

        return compared_fragment(self, summarize(self.places))


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over positions, `measured` of them with measures; summaries of several texts can be added.

    The sums and means of KL are over the finite values; `infinite_ab` and `infinite_ba` count the others.
    `decided_a` and `decided_b` count, for each stage of a side, the diverging positions that it decided.
    """

    places: int = 0
    measured: int = 0
    parted: int = 0
    tv_sum: float = 0.0
    tv_max: float = 0.0
    kl_ab_sum: float = 0.0
    kl_ba_sum: float = 0.0
    infinite_ab: int = 0
    infinite_ba: int = 0
    decided_a: Counter[str] = field(default_factory=Counter)
    decided_b: Counter[str] = field(default_factory=Counter)
    unmeasured: Counter[Unmeasured] = field(default_factory=Counter)

    def __add__(self, other: Summary) -> Summary:
        added = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return Summary(**added | {"tv_max": max(self.tv_max, other.tv_max)})

    @property
    def tv_mean(self) -> float | None:
        """The mean total variation; None without measures."""
        return _mean(self.tv_sum, self.measured)

    @property
    def kl_ab_mean(self) -> float | None:
        """The mean of the finite KL(A || B), in bits; None without any."""
        return _mean(self.kl_ab_sum, self.measured - self.infinite_ab)

    @property
    def kl_ba_mean(self) -> float | None:
        """The mean of the finite KL(B || A), in bits; None without any."""
        return _mean(self.kl_ba_sum, self.measured - self.infinite_ba)


def summarize(places: Sequence[Place]) -> Summary:
    """Return the sums over the positions of a text."""
    apart = [place.divergence for place in places if place.divergence is not None]
    parted = [place for place in places if place.is_parted]
    tv, ab, ba = ([getattr(one, key) for one in apart] for key in ("tv", "kl_ab", "kl_ba"))
    return Summary(
        places=len(places),
        measured=len(apart),
        parted=len(parted),
        tv_sum=fsum(tv),
        tv_max=max(tv, default=0.0),
        kl_ab_sum=fsum(filter(math.isfinite, ab)),
        kl_ba_sum=fsum(filter(math.isfinite, ba)),
        infinite_ab=ab.count(math.inf),
        infinite_ba=ba.count(math.inf),
        decided_a=Counter(name for place in parted for name in place.decided_a),
        decided_b=Counter(name for place in parted for name in place.decided_b),
        unmeasured=Counter(place.unmeasured for place in places if place.unmeasured),
    )


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
