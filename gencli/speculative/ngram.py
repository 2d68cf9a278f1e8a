"""Prompt lookup: continue as the text did after an earlier occurrence of its last n-gram."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.core.request import Request
from gencli.speculative.base import DraftAsk, Drafter

__all__ = ["NgramDrafter"]

_SIZES = (5, 4, 3, 2)  # n-gram sizes in tokens, the largest first
_MAX_POSITIONS = 8  # latest occurrences kept per n-gram


class _Index:
    """Positions after each n-gram of a growing text. Each token is indexed once."""

    def __init__(self) -> None:
        self._positions: dict[tuple[int, ...], list[int]] = {}
        self._seen = 0  # number of indexed tokens

    def extend(self, text: Sequence[int]) -> None:
        """Index the new tokens except the last, which nothing follows yet."""
        begin = max(0, self._seen - _SIZES[0] + 1)
        part = tuple(text[begin:])
        for end in range(self._seen + 1, len(text)):
            for size in _SIZES:
                if size <= end:
                    positions = self._positions.setdefault(part[end - begin - size : end - begin], [])
                    positions.append(end)
                    del positions[:-_MAX_POSITIONS]
        self._seen = max(self._seen, len(text) - 1)

    def find(self, text: Sequence[int]) -> list[int]:
        """Positions after earlier occurrences of the longest n-gram that ends the text, the latest last."""
        tail = tuple(text[-_SIZES[0] :])
        found = (self._positions.get(tail[-size:]) for size in _SIZES if size <= len(tail))
        return next(filter(None, found), [])


class NgramDrafter(Drafter):
    """Copies what followed the latest earlier occurrence of the text's last 5, 4, 3 or 2 tokens.

    Probability of a token: the share of known occurrences that continue with it.
    """

    def __init__(self) -> None:
        self._indexes: dict[int, _Index] = {}
        self._min_p: dict[int, float] = {}

    def admit(self, slot: int, request: Request) -> None:
        self._indexes[slot], self._min_p[slot] = _Index(), request.drafting.min_p

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[int]]:
        return [self._run(ask) for ask in asks]

    def release(self, slot: int) -> None:
        del self._indexes[slot], self._min_p[slot]

    def _run(self, ask: DraftAsk) -> list[int]:
        index, text, run = self._indexes[ask.slot], ask.tokens, list[int]()
        index.extend(text)
        positions = index.find(text)
        while positions and len(run) < ask.most:
            # Beyond the end of the text, the copy continues with its own tokens.
            token = _token(text, run, positions[-1] + len(run))
            agreeing = [position for position in positions if _token(text, run, position + len(run)) == token]
            if len(agreeing) < self._min_p[ask.slot] * len(positions):
                break
            run.append(token)
            positions = agreeing
        return run


def _token(text: Sequence[int], run: Sequence[int], position: int) -> int:
    return text[position] if position < len(text) else run[position - len(text)]
