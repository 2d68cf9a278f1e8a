"""Prompt lookup: what followed the last tokens when they stood in the text before."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter

__all__ = ["NgramDrafter"]

_SIZES = (5, 4, 3, 2)  # tokens that have to match, the most first
_PLACES = 8  # of an n-gram that are remembered, the latest


class _Index:
    """For each n-gram of a growing text the places right behind it. A token is looked at once."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._seen = 0  # tokens that have been last of an n-gram

    def extend(self, text: Sequence[int]) -> None:
        """Take in what is new, but for the last token, which nothing follows yet."""
        begin = max(0, self._seen - _SIZES[0] + 1)
        part = tuple(text[begin:])
        for end in range(self._seen + 1, len(text)):
            for size in _SIZES:
                if size <= end:
                    places = self._places.setdefault(part[end - begin - size : end - begin], [])
                    places.append(end)
                    del places[:-_PLACES]
        self._seen = max(self._seen, len(text) - 1)

    def find(self, text: Sequence[int]) -> list[int]:
        """The places behind the longest n-gram that the text ends with, the latest last."""
        tail = tuple(text[-_SIZES[0] :])
        found = (self._places.get(tail[-size:]) for size in _SIZES if size <= len(tail))
        return next(filter(None, found), [])


class NgramDrafter(Drafter):
    """Copies on from the latest place where the text had its last two to five tokens before.

    A token's probability is the share of the known places that go on with it.
    """

    def __init__(self) -> None:
        self._indexes: dict[int, _Index] = {}
        self._least: dict[int, float] = {}

    def admit(self, slot: int, request: Request) -> None:
        """See Drafter."""
        self._indexes[slot], self._least[slot] = _Index(), request.drafting.min_p

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        """See Drafter."""
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        """See Drafter."""
        del self._indexes[slot], self._least[slot]

    def _run(self, ask: DraftAsk) -> list[int]:
        index, text, run = self._indexes[ask.slot], ask.tokens, list[int]()
        index.extend(text)
        places = index.find(text)
        while places and len(run) < ask.most:
            # Behind the end of the text the copy goes on in itself, as in a loop.
            token = _token(text, run, places[-1] + len(run))
            agreeing = [place for place in places if _token(text, run, place + len(run)) == token]
            if len(agreeing) < self._least[ask.slot] * len(places):
                break
            run.append(token)
            places = agreeing
        return run


def _token(text: Sequence[int], run: Sequence[int], place: int) -> int:
    return text[place] if place < len(text) else run[place - len(text)]
