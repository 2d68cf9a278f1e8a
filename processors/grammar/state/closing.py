"""How an open document can be completed in few tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import takewhile

import torch
from torch import Tensor

from processors.grammar.backends.base import Matcher
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.json_statistics import JsonContext
from processors.grammar.state.token_kinds import is_within_character
from processors.grammar.state.work import Work

__all__ = ["Closer", "Spot"]

_MASK_CALLS = 8  # a mask costs about as much
_LONGEST_TAIL = 64  # tokens of a known completion that are tried anew
_SOON = 8  # tokens within which a known completion comes to fit
_SHORT = 3  # tokens; for a completion that is longer a search is worth its work
_LATE = 4  # times that other bytes come before what is escaped or part of a character
_REMEMBERED = 1024  # orders
_QUOTE, _BACKSLASH = _IN_STRINGS = b'"\\'
# Tried in this order where there is a choice: what ends something, what goes on, white space last.
_EARLY = b'"}]:,0)>'
_ORDER = (*_EARLY, *(byte for byte in range(33, 256) if byte not in _EARLY), *range(33))


class Spot:
    """A place in a document: the matcher there, the end of the text, in JSON (else None) its signs.

    `samples` are texts that strings of the grammar may end with. A spot goes on by tokens, and back to where
    it began.
    """

    def __init__(
        self,
        matcher: Matcher,
        text: bytes,
        signs: JsonContext | None,
        speller: CanonicalTokenizer,
        samples: Sequence[str] = (),
    ) -> None:
        self.matcher, self.text, self.signs, self.samples = matcher, text, signs, samples
        self._speller = speller
        self._behind: list[tuple[bytes, JsonContext | None]] = []

    @property
    def in_string(self) -> bool:
        """Whether the place is inside a string of JSON, and not within an escape."""
        return self.signs is not None and self.signs.in_string and not self.signs.is_escaped

    def accept(self, token: int) -> bool:
        """Go one token on; False, and nothing has changed, if the grammar does not allow it."""
        if not self.matcher.accept(token):
            return False
        self.note(token)
        return True

    def note(self, token: int) -> None:
        """The matcher has gone on by this token."""
        self._behind.append((self.text, self.signs))
        self.text = self._speller.join(self.text, token)
        self.signs = self.signs and self.signs.after(self._speller.token_bytes[token])

    def rollback(self, count: int) -> None:
        """Take the last `count` tokens back."""
        if count:
            self.matcher.rollback(count)
            self.text, self.signs = self._behind[-count]
            del self._behind[-count:]


class Closer:
    """Looks for completions: tokens behind which a document is complete.

    A completion follows forced text, and where there is a choice it takes what ends something. In a string
    that may not end yet it goes by the fewest bytes behind which it may, which are searched breadth first.
    `mask_of` gives the mask [W] of a matcher's state.
    """

    def __init__(self, speller: CanonicalTokenizer, mask_of: Callable[[Matcher], Tensor]) -> None:
        self.speller, self._mask_of = speller, mask_of
        self._byte_ids = speller.byte_ids
        self._known = known = [byte for byte in _ORDER if byte in speller.byte_ids]
        self._bytes = [speller.byte_ids[byte] for byte in known]
        self._inner = [speller.byte_ids[byte] for byte in range(128, 192) if byte in speller.byte_ids]
        # A byte's rank, and above it how often it stands in a string.
        self._weights = [_ORDER.index(byte) + (_LATE << 8) * (_awkwardness(byte) > 1) for byte in range(256)]
        # Where all are as short, letters read better than signs.
        plain = sorted((byte for byte in known if byte not in _IN_STRINGS), key=_awkwardness)
        self._plain = [speller.byte_ids[byte] for byte in plain]
        self._ascii = {speller.byte_ids[byte] for byte in plain if _awkwardness(byte) < 2}
        self._words = torch.tensor(self._plain) // 32
        self._bits = torch.tensor(self._plain) % 32
        self._ordered = lru_cache(maxsize=_REMEMBERED)(self._rarest_first)

    def spot(
        self, matcher: Matcher, text: bytes, signs: JsonContext | None, samples: Sequence[str] = ()
    ) -> Spot:
        """A place where completions are looked for."""
        return Spot(matcher, text, signs, self.speller, samples)

    def find(self, spot: Spot, most: int, work: Work) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens: the first one if it is short, else what a search finds."""
        quick = self.path(spot, most, work)
        if quick is not None and len(quick) <= _SHORT:
            return quick
        searched = self.path(spot, len(quick) if quick else most, work, search=True)
        return quick if searched is None else searched

    def path(
        self, spot: Spot, most: int, work: Work, *, hint: tuple[int, ...] = (), search: bool = False
    ) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens, or None. The spot is afterwards what it was.

        `hint` is one of another place nearby: its end often fits. Without `search` a string goes on by what
        stands least in it until it may end.
        """
        found: list[int] = []
        try:
            while not spot.matcher.is_complete():
                room = most - len(found)
                # A string that has gone on for a while takes no other end.
                is_promising = len(found) < _SOON or not spot.in_string
                tail = self._tail(spot, hint, room, work) if is_promising else []
                step = tail or self._step(spot, room, work, search)
                found += step
                if not step or len(found) > most:
                    return None
            return tuple(found)
        finally:
            spot.rollback(len(found))

    def _tail(self, spot: Spot, hint: tuple[int, ...], most: int, work: Work) -> list[int]:
        """The shortest end of the hint that completes the document here; it is then accepted."""
        for start in range(len(hint) - 1, max(len(hint) - min(most, _LONGEST_TAIL), 0) - 1, -1):
            done: list[int] = []
            for token in work.each(hint[start:]):
                if not spot.accept(token):
                    break
                done.append(token)
                if spot.matcher.is_complete():
                    return done
            spot.rollback(len(done))
        return []

    def _step(self, spot: Spot, most: int, work: Work, search: bool) -> list[int]:
        """Goes on by forced text, the rest of a string or one byte; the tokens that were accepted."""
        done: list[int] = []
        for token in work.each(self.speller.spell(spot.text, spot.matcher.forced())):
            if not spot.accept(token):
                break
            done.append(token)
        if done:
            return done
        end = self._end(spot)
        if end is not None and work.spend() and spot.accept(end):
            return [end]
        if search and (spot.in_string or spot.signs is None):
            rest = self._sampled(spot, work) or self._search(spot, most, work)
            for token in rest:
                spot.accept(token)
            if rest:
                return rest
        first = spot.matcher.accept_first(work.each(self._order(spot)))
        if first is None:
            return []
        spot.note(first)
        return [first]

    def _sampled(self, spot: Spot, work: Work) -> list[int]:
        """The shortest end of a sample behind which the string may end, or the document is complete.

        A search finds none where an expression may begin again at each byte, as .*foo does: all masks are
        alike.
        """
        matcher, found = spot.matcher, list[int]()
        for text in spot.samples:
            tokens = [self._byte_ids.get(byte, -1) for byte in text.encode()]
            for start in range(len(tokens) - 1, -1, -1):
                accepted = sum(takewhile(bool, map(matcher.accept, work.each(tokens[start:]))))
                is_end = accepted == len(tokens) - start and _may_end(matcher, self._end(spot))
                matcher.rollback(accepted)
                if is_end and not 0 < len(found) <= accepted:
                    found = tokens[start:]
                if is_end:
                    break
        return found

    def _end(self, spot: Spot) -> int | None:
        """The token that ends the string in which a spot is."""
        return self._byte_ids.get(_QUOTE) if spot.in_string else None

    def _order(self, spot: Spot) -> list[int]:
        """Ids of bytes in the order in which they are tried.

        Inside a string it is what stands least in it: a pattern may never end while one sign comes again
        and again.
        """
        if is_within_character(spot.text):
            return self._inner
        if not spot.in_string:
            return self._bytes
        return self._ordered(spot.text[spot.text.rfind(b'"') + 1 :])

    def _rarest_first(self, inside: bytes) -> list[int]:
        weights = self._weights.copy()
        for byte, count in Counter(inside).items():
            weights[byte] += count << 8
        return [self._byte_ids[byte] for byte in sorted(self._known, key=weights.__getitem__)]

    def _search(self, spot: Spot, most: int, work: Work) -> list[int]:
        """The fewest bytes behind which the string may end, or outside JSON the document is complete.

        States with the same mask are taken for one. They are not where a grammar counts, so [] does not say
        that there is no end.
        """
        matcher, end = spot.matcher, self._end(spot)
        mask = self._mask_of(matcher)
        seen = {_key(mask)}
        queue: deque[tuple[tuple[int, ...], Tensor]] = deque([((), mask)])
        while queue:
            path, mask = queue.popleft()
            if len(path) >= most or not work.spend(len(path) + 1):
                return []
            accepted = sum(map(matcher.accept, path))
            try:
                for token in self._legal(mask):
                    if not work.spend(_MASK_CALLS) or not matcher.accept(token):
                        continue
                    try:
                        if _may_end(matcher, end):
                            return [*path, token]
                        later = self._mask_of(matcher)
                    finally:
                        matcher.rollback(1)
                    if (key := _key(later)) not in seen:
                        seen.add(key)
                        queue.append(((*path, token), later))
            finally:
                matcher.rollback(accepted)
        return []

    def _legal(self, mask: Tensor) -> list[int]:
        """Ids of the bytes of text that a mask [W] allows; only those of ASCII if there are any."""
        flags = (mask[self._words] >> self._bits & 1).tolist()
        legal = [token for token, flag in zip(self._plain, flags, strict=True) if flag]
        return [token for token in legal if token in self._ascii] or legal


def _may_end(matcher: Matcher, end: int | None) -> bool:
    """Whether this token may come now; without one, whether the document is complete."""
    if end is None:
        return matcher.is_complete()
    if not matcher.accept(end):
        return False
    matcher.rollback(1)
    return True


def _awkwardness(byte: int) -> int:
    """How late a byte comes inside a string: letters and digits, signs, what is escaped or no character."""
    if byte == _BACKSLASH or not 32 <= byte < 127:
        return 2
    return 0 if chr(byte).isalnum() else 1


def _key(mask: Tensor) -> bytes:
    return mask.numpy().tobytes()
