"""Near a limit of tokens: keep a completion known, and forbid what leaves no room for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from processors.grammar.backends.bits import allowed_ids, allows, forbid
from processors.grammar.state.closing import Closer, Spot
from processors.grammar.state.token_kinds import TokenKinds, Where
from processors.grammar.state.work import Work

__all__ = ["Narrower", "Outlook"]

_SLACK = 48  # tokens beyond a completion from which on every token is looked at
_ANYTHING = b'"Z0 ~{.'  # what a string without a pattern may go on with
_MEASURED = 16  # tokens between two looks at how far the end is
_LAST = 4  # so many before the end no token stands for another one where its kind is rough
_FEW = 32  # so many tokens are tried each for itself
_LAST_FEW = 128
_SEARCH_CALLS = 12_000  # of the matcher, for a completion
_NARROW_CALLS = 3_000  # for a mask


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of a document's end at one place, as far as the limit of tokens calls for it.

    `reach` are the tokens that a completion was last seen to take. `path` is the completion here, which is
    looked for where `is_near`; None if none was found.
    """

    reach: int = 0
    is_near: bool = False
    path: tuple[int, ...] | None = None


class Narrower:
    """Narrows masks so that documents are completed within their limit of tokens.

    An outlook depends on the text alone: it is the same with drafts, and beside others. `has_given_up` says
    that work ran out with no completion known: then masks stay as they are.
    """

    def __init__(self, closer: Closer, kinds: TokenKinds, width: int) -> None:
        self.closer, self._kinds, self._width = closer, kinds, width
        self.has_given_up = False

    def shortest(self, spot: Spot, most: int) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens where none is known yet; None if none is found."""
        return self._found(self.closer.find(spot, most, work := Work(_SEARCH_CALLS)), work)

    def start(self, path: tuple[int, ...], left: int) -> Outlook:
        """The outlook where a document begins that this completes; `left` tokens may still come."""
        is_near = _is_near(len(path), left)
        return Outlook(len(path), is_near, path if is_near else None)

    def after(self, before: Outlook, token: int, spot: Callable[[], Spot], count: int, left: int) -> Outlook:
        """The outlook behind one more token, the `count`th; `left` may still come."""
        reach = before.reach
        if not _is_near(reach, left):
            if count % _MEASURED:
                return Outlook(reach)
            reach = len(self.closer.path(spot(), left, Work(_NARROW_CALLS)) or ()) or reach
        if left < 1 or not _is_near(reach, left):
            return Outlook(reach)
        path = self._next(before.path, token, spot(), left) if before.is_near else self.shortest(spot(), left)
        return Outlook(reach if path is None else len(path), True, path)

    def _next(
        self, before: tuple[int, ...] | None, token: int, spot: Spot, left: int
    ) -> tuple[int, ...] | None:
        """The completion one token behind a place where this one was known."""
        if before and before[0] == token:
            return before[1:]
        work = Work(_SEARCH_CALLS)
        found = self.closer.path(spot, left, work, hint=before or ())
        if found is None and before:
            found = self.closer.find(spot, left, work)
        return self._found(found, work)

    def _found(self, path: tuple[int, ...] | None, work: Work) -> tuple[int, ...] | None:
        self.has_given_up |= path is None and work.is_spent
        return path

    def narrow(self, mask: Tensor, spot: Spot, path: tuple[int, ...] | None, left: int) -> None:
        """Forbid in mask [W] the tokens that leave no room; `left` >= 1 may still come.

        One token is tried for each kind. What there is no work left to try is forbidden, the completion
        `path` never. Without one that has room nothing is.
        """
        if path is None or not len(path) <= left <= len(path) + _SLACK:
            return
        ids = allowed_ids(mask, self._width)
        where = self._where(mask, spot)
        is_last = where in ("pattern", "text") and left <= len(path) + _LAST
        if is_last or len(ids) <= _FEW:
            size, groups = len(ids), torch.arange(len(ids))
        else:
            kinds = self._kinds.at(where)
            size, groups = kinds.count, kinds.of[ids]
        first = torch.full((size,), self._width).scatter_reduce(0, groups, ids, "amin")
        present = (first < self._width).nonzero().flatten()
        if is_last:
            present = present[:_LAST_FEW]
        work, tried = Work(_NARROW_CALLS), zip(present.tolist(), first[present].tolist(), strict=True)
        fits = torch.zeros(size, dtype=torch.bool)
        fits[[group for group, token in tried if self._fits(spot, token, left - 1, path, work)]] = True
        out = ~fits[groups]
        if path:
            out &= ids != path[0]
        forbid(mask, ids[out])

    def _fits(self, spot: Spot, token: int, left: int, path: tuple[int, ...], work: Work) -> bool:
        if not work.spend():
            return False
        if not spot.accept(token):
            return True  # not text, but the end of it
        try:
            hint = path[1:] if path[:1] == (token,) else path
            return self.closer.path(spot, left, work, hint=hint) is not None
        finally:
            spot.rollback(1)

    def _where(self, mask: Tensor, spot: Spot) -> Where:
        if spot.signs is None:
            return "text"
        if not spot.in_string:
            return "structure"
        ids = self.closer.canonical.byte_ids
        is_free = all(allows(mask, ids[byte]) for byte in _ANYTHING if byte in ids)
        return "string" if is_free else "pattern"


def _is_near(reach: int, left: int) -> bool:
    """Whether the limit may be short: until it is looked at again, the end can move away."""
    return left <= reach + 2 * _SLACK
