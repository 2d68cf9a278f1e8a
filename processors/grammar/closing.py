"""`Closer`: search for short completions of an open document; positions in it, and kinds of tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, takewhile
from typing import Literal

import torch
from torch import Tensor

from processors.grammar.forced_tokens import BACKSLASH, QUOTE, STRING_SIGNS, CanonicalTokenizer, JsonContext
from processors.grammar.grammar_backend import Matcher
from processors.grammar.short_texts import Guide, SearchBudget

_MASK_CALLS = 8  # cost of a mask in matcher calls
_LONGEST_TAIL = 64  # last tokens of a known completion that are tried again
_LONGEST_HEAD = 4  # first tokens of a long known completion behind which the rest of it is tried
_SOON = 8  # position in a completion up to which the end of a known completion is tried inside a string
_SHORT = 3  # tokens; for a longer completion a shorter one is searched
_AVOIDED = 4  # uses of any other byte before an escape or a byte of a multi-byte character is tried
_REMEMBERED = 1024  # cached byte orders
# Search order of bytes: closing characters, other characters, white space last.
_EARLY = b'"}]:,0)>'
_ORDER = (*_EARLY, *(byte for byte in range(33, 256) if byte not in _EARLY), *range(33))


class Closer:
    """Finds completions: tokens after which a document is complete.

    A completion follows forced text and prefers closing characters. In a string that may not end yet, a
    breadth-first search finds the fewest bytes after which it may. `mask_of` returns the mask [W] of a
    matcher.
    """

    def __init__(self, canonical: CanonicalTokenizer, mask_of: Callable[[Matcher], Tensor]) -> None:
        self.canonical, self._mask_of = canonical, mask_of
        self._byte_ids = canonical.byte_ids
        self._byte_order = usable = [byte for byte in _ORDER if byte in canonical.byte_ids]
        self._bytes = [canonical.byte_ids[byte] for byte in usable]
        self._inner = [canonical.byte_ids[byte] for byte in range(128, 192) if byte in canonical.byte_ids]
        # Among paths of equal length the search returns the first, so letters come before punctuation.
        plain = sorted((byte for byte in usable if byte not in STRING_SIGNS), key=_byte_class)
        self._plain = [canonical.byte_ids[byte] for byte in plain]
        self._ascii = {canonical.byte_ids[byte] for byte in plain if _byte_class(byte) < 2}
        self._words = torch.tensor(self._plain) // 32
        self._bits = torch.tensor(self._plain) % 32
        self._ordered = lru_cache(maxsize=_REMEMBERED)(self._rarest_first)

    def find(self, position: Position, limit: int, work: SearchBudget) -> tuple[int, ...] | None:
        """Return a completion of at most `limit` tokens, or None; search if the greedy one is long."""
        quick = self.path(position, limit, work.half())
        if quick is not None and len(quick) <= _SHORT:
            return quick
        searched = self.path(position, len(quick) if quick else limit, work, search=True)
        return quick if searched is None else searched

    def path(
        self,
        position: Position,
        limit: int,
        work: SearchBudget,
        *,
        hint: tuple[int, ...] = (),
        search: bool = False,
    ) -> tuple[int, ...] | None:
        """Return a completion of at most `limit` tokens, or None. The position is left unchanged.

        `hint`: completion of a nearby position; its last tokens often complete this one too. Without `search`
        a string is continued by its rarest bytes until it may end.
        """
        tokens: list[int] = []
        try:
            while not position.matcher.is_complete():
                room = limit - len(tokens)
                # Deep inside a string the end of the hint no longer fits.
                is_promising = len(tokens) < _SOON or not position.in_string
                tail = self._tail(position, hint, room, work) if is_promising else []
                step = tail or self._step(position, room, work, search)
                tokens += step
                if not step or len(tokens) > limit:
                    return None
            return tuple(tokens)
        finally:
            position.rollback(len(tokens))

    def _tail(self, position: Position, hint: tuple[int, ...], limit: int, work: SearchBudget) -> list[int]:
        """Accept and return a suffix of the hint that completes the document, or []; short ones first."""
        shortest = max(len(hint) - min(limit, _LONGEST_TAIL), 0)
        starts = [
            *range(len(hint) - 1, shortest - 1, -1),
            *range(max(len(hint) - limit, 0), min(shortest, _LONGEST_HEAD)),
        ]
        refused = set[int]()
        for start in starts:
            done: list[int] = []
            for token in work.each(hint[start:]) if hint[start] not in refused else ():
                if not position.accept(token):
                    break
                done.append(token)
                if position.matcher.is_complete():
                    return done
            if not done:
                refused.add(hint[start])
            position.rollback(len(done))
        return []

    def _step(self, position: Position, limit: int, work: SearchBudget, search: bool) -> list[int]:
        """Accept and return forced text, the rest of a string, or one byte; [] if nothing is accepted."""
        done: list[int] = []
        for token in work.each(self.canonical.tokenize_forced(position.text, position.matcher.forced())):
            if not position.accept(token):
                break
            done.append(token)
        if done:
            return done
        if name := self._listed(position, b'":', work):
            return name
        end = self._end(position)
        if end is not None and work.spend() and position.accept(end):
            return [end]
        if value := self._listed(position, b'"', work):
            return value
        if search and (position.in_string or position.signs is None):
            suffix = self._sampled(position, work) or self._search(position, limit, work)
            for token in suffix:
                position.accept(token)
            if suffix:
                return suffix
        first = position.matcher.accept_first(work.each(self._order(position)))
        if first is None:
            return []
        position.note(first)
        return [first]

    def _listed(self, position: Position, end: bytes, work: SearchBudget) -> list[int]:
        """Accept and return the next bytes of a text of the guide, up to forced text; [] if none fits.

        `end` follows it: a quote and, after a name, a colon.
        """
        if not position.in_string:
            return []
        matcher = position.matcher
        for suffix in position.guide.rests(position.text, of_names=len(end) > 1):
            tokens = [self._byte_ids.get(byte, -1) for byte in suffix + end]
            accepted = sum(takewhile(bool, map(matcher.accept, work.each(tokens))))
            matcher.rollback(accepted)
            if accepted == len(tokens):
                done = list[int]()
                for token in tokens[: max(1, len(suffix))]:
                    position.accept(token)
                    done.append(token)
                    if matcher.forced():
                        break
                return done
        return []

    def _sampled(self, position: Position, work: SearchBudget) -> list[int]:
        """Return the shortest suffix of a sample after which the string may end or the document is complete.

        `_search` fails where a match may restart at each byte, as in .*foo: all masks are equal there.
        """
        matcher, shortest = position.matcher, list[int]()
        for text in position.guide.samples:
            tokens = [self._byte_ids.get(byte, -1) for byte in text.encode()]
            for start in range(len(tokens) - 1, -1, -1):
                accepted = sum(takewhile(bool, map(matcher.accept, work.each(tokens[start:]))))
                is_end = accepted == len(tokens) - start and _may_end(matcher, self._end(position))
                matcher.rollback(accepted)
                if is_end and not 0 < len(shortest) <= accepted:
                    shortest = tokens[start:]
                if is_end:
                    break
        return shortest

    def _end(self, position: Position) -> int | None:
        return self._byte_ids.get(QUOTE) if position.in_string else None

    def _order(self, position: Position) -> list[int]:
        """Return the ids of single bytes in search order.

        Inside a string the rarest bytes come first: some patterns never end while one character repeats.
        """
        if position.text[-1:] >= b"\x80" and _missing(position.text):
            return self._inner
        if not position.in_string:
            return self._bytes
        return self._ordered(position.text[position.text.rfind(b'"') + 1 :])

    def _rarest_first(self, inside: bytes) -> list[int]:
        weights = [*_WEIGHTS]
        for byte, count in Counter(inside).items():
            weights[byte] += count << 8
        return [self._byte_ids[byte] for byte in sorted(self._byte_order, key=weights.__getitem__)]

    def _search(self, position: Position, limit: int, work: SearchBudget) -> list[int]:
        """Return the fewest bytes after which the string may end or, outside JSON, the document is complete.

        States with equal masks are merged. That is wrong where a grammar counts, so [] does not prove that
        there is no completion.
        """
        matcher, end = position.matcher, self._end(position)
        mask = self._mask_of(matcher)
        seen = {mask.numpy().tobytes()}
        queue: deque[tuple[tuple[int, ...], Tensor]] = deque([((), mask)])
        while queue:
            path, mask = queue.popleft()
            if len(path) >= limit or not work.spend(len(path) + 1):
                return []
            accepted = sum(map(matcher.accept, path))
            try:
                flags = (mask[self._words] >> self._bits & 1).tolist()
                legal = [token for token, flag in zip(self._plain, flags, strict=True) if flag]
                # ASCII bytes only, if there are any.
                for token in [token for token in legal if token in self._ascii] or legal:
                    if not work.spend(_MASK_CALLS) or not matcher.accept(token):
                        continue
                    try:
                        if _may_end(matcher, end):
                            return [*path, token]
                        later = self._mask_of(matcher)
                    finally:
                        matcher.rollback(1)
                    if (key := later.numpy().tobytes()) not in seen:
                        seen.add(key)
                        queue.append(((*path, token), later))
            finally:
                matcher.rollback(accepted)
        return []


def _may_end(matcher: Matcher, end: int | None) -> bool:
    """Whether the token `end` may come next or, if None, whether the document is complete."""
    if end is None:
        return matcher.is_complete()
    if not matcher.accept(end):
        return False
    matcher.rollback(1)
    return True


def _byte_class(byte: int) -> int:
    """Return the class of a byte: 0 letter or digit, 1 punctuation, 2 escape, control or multi-byte."""
    if byte == BACKSLASH or not 32 <= byte < 127:
        return 2
    return 0 if chr(byte).isalnum() else 1


# Search priority of a byte: its rank in _ORDER; _rarest_first adds its count in the string, shifted by 8.
_WEIGHTS = tuple(_ORDER.index(byte) + (_AVOIDED << 8) * (_byte_class(byte) > 1) for byte in range(256))


@dataclass(eq=False)
class Position:
    """A position in a document: matcher, last bytes of the text and, in JSON, its context (else None).

    `guide` lists texts that strings may have, or end with. A position can advance by tokens and roll back;
    `tokens` are those since its start.
    """

    matcher: Matcher
    text: bytes
    signs: JsonContext | None
    canonical: CanonicalTokenizer
    guide: Guide = field(default_factory=Guide)
    tokens: list[int] = field(default_factory=list, init=False)
    _undo: list[tuple[bytes, JsonContext | None]] = field(default_factory=list, init=False)

    @property
    def in_string(self) -> bool:
        """Whether the position is inside a JSON string, but not inside an escape."""
        return self.signs is not None and self.signs.in_string and not self.signs.is_escaped

    def accept(self, token: int) -> bool:
        if not self.matcher.accept(token):
            return False
        self.note(token)
        return True

    def note(self, token: int) -> None:
        self.tokens.append(token)
        self._undo.append((self.text, self.signs))
        self.text = self.canonical.join(self.text, token)
        self.signs = self.signs and self.signs.after(self.canonical.token_bytes[token])

    def rollback(self, count: int) -> None:
        if count:
            self.matcher.rollback(count)
            self.text, self.signs = self._undo[-count]
            del self.tokens[-count:], self._undo[-count:]


Where = Literal["structure", "string", "pattern", "text"]
_STRUCTURE = b'"\\{}[],:'  # structural characters of JSON
# (n, back): the lead byte of an n-byte UTF-8 character `back` bytes before the end: bytes are missing.
_LEADS = tuple((n, back) for n in (2, 3, 4) for back in range(1, n))


@dataclass(frozen=True, slots=True)
class Kinds:
    """A partition of the vocabulary: `of` [V] is the kind of each token, `count` the number of kinds."""

    of: Tensor
    count: int


class TokenKinds:
    """The kinds of tokens in each context, computed on first use. Tokens of a kind agree in:

    structure (JSON outside strings): the text from the first structural character on. string (a JSON string
    without a pattern): the text from the first quote or backslash on. pattern (a JSON string with a pattern):
    the same text, and the sequence of character classes before it. text (not JSON): the first byte. In all
    contexts: the number of bytes of a partial UTF-8 character at both ends.
    """

    def __init__(self, token_bytes: Sequence[bytes], width: int) -> None:
        self._token_bytes = [*token_bytes[:width], *[b""] * (width - len(token_bytes))]
        self._by_context: dict[Where, Kinds] = {}

    def at(self, where: Where) -> Kinds:
        """Return the kinds in this context."""
        if where not in self._by_context:
            name, numbers = _NAMES[where], dict[tuple[bytes, int, int], int]()
            of = [numbers.setdefault(_kind(data, name), len(numbers)) for data in self._token_bytes]
            self._by_context[where] = Kinds(torch.tensor(of), len(numbers))
        return self._by_context[where]


def _kind(data: bytes, name: Callable[[bytes], bytes]) -> tuple[bytes, int, int]:
    """Return the key of a kind: a name, and the partial UTF-8 characters at both ends."""
    if not data:
        return b"", -1, 0  # no text
    ends = next((index for index, byte in enumerate(data) if byte >> 6 != 2), len(data))
    return name(data), ends, _missing(data)


def _missing(data: bytes) -> int:
    """Return the number of bytes missing from the last UTF-8 character of `data`."""
    reach = ((n, back) for n, back in _LEADS if back <= len(data))
    lacks = (n - back for n, back in reach if data[-back] >> (7 - n) == 2 ** (n + 1) - 2)
    return next(lacks, 0)


def _in_structure(data: bytes) -> bytes:
    """Return the text from the first structural character on; without one, the class of the first byte."""
    if from_sign := _from_sign(data, _STRUCTURE):
        return from_sign
    first = data[:1]
    if first.isdigit() or first.isspace():
        return b"0" if first.isdigit() else b" "
    return first if first in b"tfn-+.eE" else b""


def _in_pattern(data: bytes) -> bytes:
    """Return the character classes up to the first quote or backslash, then the rest unchanged."""
    if len(data) == 1:
        return data + b"\0"  # a single byte is a kind of its own
    from_sign = _from_sign(data, STRING_SIGNS)
    return bytes(sort for sort, _ in groupby(map(_sort, data[: len(data) - len(from_sign)]))) + from_sign


def _sort(byte: int) -> int:
    sign = chr(byte)
    if byte > 127:
        return 128
    return ord("0" if sign.isdigit() else "A" if sign.isupper() else "a" if sign.isalpha() else sign)


def _from_sign(data: bytes, signs: bytes) -> bytes:
    return next((data[index:] for index, byte in enumerate(data) if byte in signs), b"")


_NAMES: dict[Where, Callable[[bytes], bytes]] = {
    "structure": _in_structure,
    "string": lambda data: _from_sign(data, STRING_SIGNS),
    "pattern": _in_pattern,
    "text": lambda data: data[:1],
}
