"""`Narrower`: completes documents within the token limit by masking tokens that leave too little room.

Triggers are literals after which a text that may end anywhere may not end any longer: around tool calls and
structural tags the text is free, but a trigger begins a part that has to be ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import methodcaller

import torch
from torch import Tensor

from processors.grammar.closing import Closer, Position, TokenKinds, Where
from processors.grammar.grammar_backend import Matcher, allowed_ids, allows, forbid
from processors.grammar.short_texts import SLACK, SearchBudget

_FREE_BYTES = b'"Z0 ~{.'  # bytes that are all allowed inside a string without a pattern
_SEARCH_INTERVAL = 16  # tokens between two searches for a completion, far from the limit
_RETRY_INTERVAL = 8  # tokens between two searches near the limit, after one has found nothing
_LAST = 4  # tokens left beyond a completion below which each token is tried, in contexts with inexact kinds
_FEW = 32  # number of allowed tokens up to which each one is tried
_LAST_FEW = 128  # limit of tokens tried one by one below _LAST
_SEARCH_CALLS = 12_000  # budget of matcher calls to find a completion
START_CALLS = 60_000  # the same at the start of a document, once for a grammar
_NARROW_CALLS = 3_000  # budget of matcher calls to narrow a mask
_CALLS_PER_TOKEN = 16  # the same, more for each token of the completion


@dataclass(frozen=True, slots=True)
class Outlook:
    """Knowledge of a document's completion at one position.

    `reach`: length of the completion last found, in tokens. `is_near`: the token limit is near. `path`: the
    completion from here, searched only if `is_near`; None if none was found.
    """

    reach: int = 0
    is_near: bool = False
    path: tuple[int, ...] | None = None


class Narrower:
    """Narrows masks so that documents are complete within their token limit.

    An outlook depends on the text alone, not on drafts or other requests. `slack`, at least SLACK: tokens by
    which one token may make the shortest completion longer. `has_given_up`: the work budget ran
    out without a completion, so masks stayed as they were.
    """

    def __init__(self, closer: Closer, kinds: TokenKinds, width: int) -> None:
        self.closer, self._kinds, self._width = closer, kinds, width
        self._triggering = TriggerTokens(closer.canonical.token_bytes[:width])
        self.has_given_up = False

    def shortest(self, position: Position, limit: int, calls: int = _SEARCH_CALLS) -> tuple[int, ...] | None:
        """Search for a completion of at most `limit` tokens; None if none is found."""
        return self._recorded(self.closer.find(position, limit, work := SearchBudget(calls)), work)

    def start(self, path: tuple[int, ...] | None, left: int, slack: int = SLACK) -> Outlook:
        """Return the outlook at the start of a document completed by `path`; `left` tokens remain.

        Without a `path` the limit counts as near, so that one is searched again.
        """
        if path is None:
            return Outlook(left, True)
        is_near = _is_near(len(path), left, slack)
        return Outlook(len(path), is_near, path if is_near else None)

    def after(
        self,
        before: Outlook,
        token: int,
        position: Callable[[], Position],
        count: int,
        left: int,
        slack: int = SLACK,
    ) -> Outlook:
        """Return the outlook after one more token, the `count`-th; `left` tokens remain."""
        reach = before.reach
        if not _is_near(reach, left, slack):
            if count % _SEARCH_INTERVAL:
                return Outlook(reach)
            reach = len(self.closer.path(position(), left, SearchBudget(_NARROW_CALLS)) or ()) or reach
        if left < 1 or not _is_near(reach, left, slack):
            return Outlook(reach)
        path: tuple[int, ...] | None = None
        if before.path and before.path[0] == token:
            path = before.path[1:]
        elif before.path is not None:
            spot, work = position(), SearchBudget(_SEARCH_CALLS)
            path = self.closer.path(spot, left, work, hint=before.path)
            if path is None and before.path:
                path = self.closer.find(spot, left, work)
            path = self._recorded(path, work)
        elif not before.is_near or count % _RETRY_INTERVAL == 0:
            path = self.shortest(position(), left)
        return Outlook(reach if path is None else len(path), True, path)

    def _recorded(self, path: tuple[int, ...] | None, work: SearchBudget) -> tuple[int, ...] | None:
        self.has_given_up |= path is None and work.is_spent
        return path

    def narrow(
        self,
        mask: Tensor,
        position: Position,
        path: tuple[int, ...] | None,
        left: int,
        triggers: Sequence[bytes] = (),
        slack: int = SLACK,
    ) -> None:
        """Forbid in mask [W] the tokens after which no completion fits; `left` >= 1 tokens remain.

        One token of each kind is tried. Without a `path` that fits, the mask is unchanged. Where the text may
        end here, a token is forbidden only if it was tried itself, so that free text stays as it is. Where it
        may not, and at most SLACK tokens remain beyond the `path`, tokens that the work budget leaves untried
        are forbidden, except the first of the `path`.
        """
        if path is None or not len(path) <= left <= len(path) + slack:
            return
        ids = allowed_ids(mask, self._width)
        if path:
            forbid(mask, self._misfits(ids, self._where(mask, position), position, path, left))
        else:
            forbid(mask, self._openers(mask, ids, position, left, triggers))

    def _misfits(
        self, ids: Tensor, where: Where, position: Position, path: tuple[int, ...], left: int
    ) -> Tensor:
        """Return the ids of kinds whose first token leaves no room for a completion, and of kinds untried."""
        is_last = where in ("pattern", "text") and left <= len(path) + _LAST
        groups, first = self._grouped(ids, where, alone=is_last or len(ids) <= _FEW)
        present = (first < self._width).nonzero().flatten()
        if is_last:
            present = present[:_LAST_FEW]
        work = SearchBudget(_NARROW_CALLS + _CALLS_PER_TOKEN * len(path))
        fits = torch.full((len(first),), left > len(path) + SLACK)
        for group, token in zip(present.tolist(), first[present].tolist(), strict=True):
            is_fit = self._fits(position, token, left - 1, path, work)
            if work.is_spent:
                break
            fits[group] = is_fit
        return ids[~fits[groups] & (ids != path[0])]

    def _openers(
        self, mask: Tensor, ids: Tensor, position: Position, left: int, triggers: Sequence[bytes]
    ) -> Tensor:
        """Return the ids after which a text that may end here cannot be ended in time, each of them tried.

        These are tokens that complete one of the `triggers`, and all tokens of a kind whose first one is such
        a token.
        """
        work, where = SearchBudget(_NARROW_CALLS), self._where(mask, position)
        triggering = self._triggering.completing(position.text, triggers)
        tried = [token for token in triggering if allows(mask, token)]
        groups, first = self._grouped(ids, where, alone=len(ids) <= _FEW)
        heads = first[first < self._width].tolist()
        if not triggers and where in ("pattern", "text") and left <= _LAST:
            heads = ids[:_NARROW_CALLS].tolist()  # the budget allows no more

        def is_late(token: int) -> bool:
            return not self._fits(position, token, left - 1, (), work) and not work.is_spent

        late = {token for token in (*tried, *heads) if is_late(token)}
        of_late = groups[torch.isin(ids, torch.tensor(sorted(late.intersection(heads)), dtype=ids.dtype))]
        members = ids[torch.isin(groups, of_late)].tolist()
        late.update(token for token in members if token not in late and is_late(token))
        return torch.tensor(sorted(late), dtype=ids.dtype)

    def _grouped(self, ids: Tensor, where: Where, *, alone: bool) -> tuple[Tensor, Tensor]:
        """Return the kind of each id, and the first id of each kind, or the width of the mask."""
        if alone:
            count, groups = len(ids), torch.arange(len(ids))
        else:
            kinds = self._kinds.at(where)
            count, groups = kinds.count, kinds.of[ids]
        return groups, torch.full((count,), self._width).scatter_reduce(0, groups, ids, "amin")

    def _fits(
        self, position: Position, token: int, left: int, path: tuple[int, ...], work: SearchBudget
    ) -> bool:
        if not work.spend():
            return False
        if not position.accept(token):
            return True  # an end-of-text token
        try:
            hint = path[1:] if path[:1] == (token,) else path
            return self.closer.path(position, left, work, hint=hint) is not None
        finally:
            position.rollback(1)

    def _where(self, mask: Tensor, position: Position) -> Where:
        if position.signs is None:
            return "text"
        if not position.in_string:
            return "structure"
        ids = self.closer.canonical.byte_ids
        is_free = all(allows(mask, ids[byte]) for byte in _FREE_BYTES if byte in ids)
        return "string" if is_free else "pattern"


def _is_near(reach: int, left: int, slack: int) -> bool:
    """Whether the token limit is near; the margin covers growth of the completion until the next search."""
    return left <= reach + slack + SLACK


_LITERAL = re.compile(r'"(?:[^"\\]|\\.)+"')  # of JSON, Lark and EBNF
_MAX_BYTES = 1 << 14  # of all literals that are tried


def find_triggers(text: str, matcher: Matcher, byte_ids: dict[int, int]) -> tuple[bytes, ...]:
    """Return the triggers among the literals of a grammar's text; () where the text may not end at the start.

    A literal is given to the matcher byte by byte; `byte_ids` are the ids of single bytes. The matcher is
    left unchanged.
    """
    if not matcher.is_complete():
        return ()
    triggers, left = set[bytes](), _MAX_BYTES
    for literal in dict.fromkeys(_LITERAL.findall(text)):
        try:
            data = json.loads(literal).encode()
        except ValueError:  # other escapes than those of JSON, or half of a surrogate pair
            continue
        left -= len(data)
        if left < 0:
            break
        triggers.add(_ending(data, matcher, byte_ids))
    triggers.discard(b"")
    return tuple(sorted(data for data in triggers if not any(other in data for other in triggers - {data})))


def _ending(data: bytes, matcher: Matcher, byte_ids: dict[int, int]) -> bytes:
    """Return the first bytes of the literal after which the text may not end; b"" if it always may."""
    accepted = 0
    try:
        for byte in data:
            if not matcher.accept(byte_ids.get(byte, -1)):
                return b""
            accepted += 1
            if not matcher.is_complete():
                return data[:accepted]
        return b""
    finally:
        matcher.rollback(accepted)


class TriggerTokens:
    """The tokens that complete a trigger, by the end of the text before them."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._containing = lru_cache(maxsize=64)(self._scan)

    def completing(self, text: bytes, triggers: Sequence[bytes]) -> list[int]:
        """Return the ids of the tokens with which `text` contains one more trigger."""
        ids = set[int]()
        for trigger in triggers:
            ids.update(self._containing(trigger, False))
            for size in range(1, len(trigger)):
                if text.endswith(trigger[:size]):
                    ids.update(self._containing(trigger[size:], True))
        return sorted(ids)

    def _scan(self, data: bytes, is_first: bool) -> tuple[int, ...]:
        contains = methodcaller("startswith" if is_first else "__contains__", data)
        return tuple(token for token, text in enumerate(self._token_bytes) if contains(text))
