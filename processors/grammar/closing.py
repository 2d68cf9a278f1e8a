"""How an open document can be ended soon, and which tokens leave room for that in a budget."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from processors.grammar.backend import Matcher
from processors.grammar.bits import allowed_ids, allows, forbid
from processors.grammar.canonical import Speller

__all__ = ["SLACK", "Closer"]

SLACK = 48  # tokens beyond the shortest end from which on every token is looked at
_MAX_SECONDS = 0.5  # of computing; ordinary grammars take a hundredth of it
_LATE, _NESTED = 4, 8  # times that others come first, and that brackets do
_REMEMBERED = 1024  # orders
_FEW = 32  # so many tokens are tried each for itself
_STRUCTURE = b'"\\{}[],:'  # of JSON
_IN_STRINGS = b'"\\'  # what of it is more than text inside a string
# A lead byte of n bytes of UTF-8, so far from the end that the character is not complete.
_LEADS = tuple((n, back) for n in (2, 3, 4) for back in range(1, n))
# Tried in this order where there is a choice: what ends something, what goes on, white space last.
_EARLY = b'"}]:,0)>'
_ORDER = (*_EARLY, *(byte for byte in range(33, 256) if byte not in _EARLY), *range(33))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Tokens that are taken to be alike: `of` [V] says of which kind each is."""

    of: Tensor
    count: int


class Closer:
    """Looks for short ends of documents: forced text, and where there is a choice the first legal byte."""

    def __init__(self, speller: Speller, width: int) -> None:
        self.speller, self._width = speller, width
        known = [byte for byte in _ORDER if byte in speller.byte_ids]
        self._bytes = [speller.byte_ids[byte] for byte in known]
        self._ranks = {byte: rank for rank, byte in enumerate(known)}
        self._weights = [_weight(byte, 0) for byte in known]
        self._kinds: dict[bytes, _Kinds] = {}
        self._ordered = lru_cache(maxsize=_REMEMBERED)(self._rarest_first)

    def path(
        self, matcher: Matcher, text: bytes, most: int, *, is_json: bool = False
    ) -> tuple[int, ...] | None:
        """Tokens behind which the document is complete; None if none are found among the first `most`.

        It is no search: a shorter end may exist. From each place on it the rest is found again, for what
        comes next depends on the text alone. The matcher is afterwards what it was.
        """
        found: list[int] = []
        begin = time.thread_time()
        try:
            while not matcher.is_complete():
                step = self._step(matcher, text, is_json)
                is_slow = time.thread_time() - begin > _MAX_SECONDS
                if not step or is_slow or len(found) + len(step) > most:
                    found += step  # which are to be taken back as well
                    return None
                for token in step:
                    text = self.speller.join(text, token)
                found += step
            return tuple(found)
        finally:
            matcher.rollback(len(found))

    def _step(self, matcher: Matcher, text: bytes, is_json: bool) -> list[int]:
        """Goes on by forced text or one byte; the tokens that were accepted."""
        done: list[int] = []
        for token in self.speller.spell(text, matcher.forced()):
            if not matcher.accept(token):
                break
            done.append(token)
        if done:
            return done
        first = matcher.accept_first(self._order(matcher, text, is_json))
        return [] if first is None else [first]

    def _order(self, matcher: Matcher, text: bytes, is_json: bool) -> list[int]:
        """Ids of bytes in the order in which they are tried.

        Inside a string of JSON, where no line can break, it is first its end, and then what stands least in
        it: an expression of its own may never end while one sign comes again and again.
        """
        if not is_json or self._may_break(matcher):
            return self._bytes
        return self._ordered(text[text.rfind(b'"') + 1 :])

    def _rarest_first(self, inside: bytes) -> list[int]:
        weights = self._weights.copy()
        for byte, count in Counter(inside).items():
            if byte in self._ranks:
                weights[self._ranks[byte]] = _weight(byte, count)
        return [self._bytes[rank] for rank in sorted(range(len(weights)), key=weights.__getitem__)]

    def _may_break(self, matcher: Matcher) -> bool:
        token = self.speller.byte_ids.get(10)
        if token is None or not matcher.accept(token):
            return token is None
        matcher.rollback(1)
        return True

    def narrow(self, mask: Tensor, matcher: Matcher, text: bytes, left: int, *, is_json: bool) -> None:
        """Forbid in mask [W] what leaves no room to end the document; `left` >= 1 tokens may still come.

        Tokens are tried one for each kind: in JSON those that are alike from the first sign of structure
        on, inside a string from its first quote or backslash on, elsewhere those with the same first
        byte. If there is no room at all, nothing is forbidden.
        """
        path = self.path(matcher, text, left, is_json=is_json)
        if path is None or left > len(path) + SLACK:
            return
        ids = allowed_ids(mask, self._width)
        kinds = self._of_kind(self._signs(mask) if is_json else b"")
        groups = torch.arange(len(ids)) if len(ids) <= _FEW else kinds.of[ids]
        size = max(kinds.count, _FEW)
        first = torch.full((size,), self._width).scatter_reduce(0, groups, ids, "amin")
        present = (first < self._width).nonzero().flatten()
        tokens = first[present].tolist()
        gone = [
            group
            for group, token in zip(present.tolist(), tokens, strict=True)
            if not self._fits(matcher, text, token, left - 1, is_json)
        ]
        is_gone = torch.zeros(size, dtype=torch.bool)
        is_gone[gone] = True
        out = is_gone[groups]
        if path:
            out &= ids != path[0]
        forbid(mask, ids[out])

    def _fits(self, matcher: Matcher, text: bytes, token: int, left: int, is_json: bool) -> bool:
        if not matcher.accept(token):
            return True  # not text, but the end of it
        try:
            return self.path(matcher, self.speller.join(text, token), left, is_json=is_json) is not None
        finally:
            matcher.rollback(1)

    def _signs(self, mask: Tensor) -> bytes:
        """The bytes that are signs of structure here: inside a string, which may hold a Z, they are few."""
        letter = self.speller.byte_ids.get(ord("Z"))
        return _IN_STRINGS if letter is not None and allows(mask, letter) else _STRUCTURE

    def _of_kind(self, signs: bytes) -> _Kinds:
        if signs not in self._kinds:
            numbers: dict[tuple[bytes, int, int], int] = {}
            missing = [b""] * (self._width - len(self.speller.token_bytes))
            known = [*self.speller.token_bytes[: self._width], *missing]
            of = [numbers.setdefault(_kind(data, signs), len(numbers)) for data in known]
            self._kinds[signs] = _Kinds(torch.tensor(of), len(numbers))
        return self._kinds[signs]


def _weight(byte: int, count: int) -> int:
    """How late a byte comes that a string has so often: never its end, last what is escaped or part of a
    character.

    Brackets come first some times: without white space a document looks like a string in between.
    """
    if byte in b"]}":
        return count // _NESTED
    is_awkward = byte == ord("\\") or not 32 <= byte < 127
    return -1 if byte == ord('"') else count + _LATE * is_awkward


def _kind(data: bytes, signs: bytes) -> tuple[bytes, int, int]:
    """What tokens have in common: structure, and how much of a character they begin and end with."""
    if not data:
        return b"", -1, 0  # no text
    first = next((place for place, byte in enumerate(data) if byte in signs), len(data))
    ends = next((place for place, byte in enumerate(data) if byte >> 6 != 2), len(data))
    reach = ((n, back) for n, back in _LEADS if back <= len(data))
    lacks = (n - back for n, back in reach if data[-back] >> (7 - n) == 2 ** (n + 1) - 2)
    return (data[first:] or _start(data)) if signs else data[:1], ends, next(lacks, 0)


def _start(data: bytes) -> bytes:
    """What a value without signs of structure begins or goes on with: a sign of a number, a word, a space."""
    first = data[:1]
    if first.isdigit() or first.isspace():
        return b"0" if first.isdigit() else b" "
    return first if first in b"tfn-+.eE" else b""
