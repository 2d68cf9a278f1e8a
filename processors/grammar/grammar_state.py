"""`GrammarState`: the state of one request before, inside or after its constrained document; the tokens
that its grammar forces or makes probable; limits of JSON readers. A grammar of JSON allows numbers of
any length and exponent, any depth, and half a surrogate pair as an escape; readers refuse them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Literal

import torch
from torch import Tensor

from processors.base import GrammarStatus, Noise
from processors.grammar.closing import Position
from processors.grammar.forced_tokens import CanonicalTokenizer, SeparatorModel
from processors.grammar.grammar_backend import Ask, Matcher, allow_only, allows, pack
from processors.grammar.narrowing import Narrower, Outlook
from processors.grammar.short_texts import Guide
from processors.request_values import MAX_DEPTH, MAX_EXPONENT, MAX_NUMBER, Marker


@dataclass(frozen=True, slots=True, eq=False)
class GrammarRules:
    """Constants of one request.

    `ends`: ids that end the text. `is_canonical`: forced text must have the tokens that the tokenizer would
    produce. `budget`: limit of output tokens within which the document has to be completed; None for no such
    limit. With a budget, `shortest` is a short complete document (None if none is known), `guide` lists texts
    of its strings, and `triggers` end free text (see find_triggers). `usual`: the separator counts of a
    document that has not begun. `document`: where the text is JSON; `readable` keeps that within the limits
    of readers.
    """

    canonical: CanonicalTokenizer
    narrower: Narrower
    ends: frozenset[int]
    marker: Marker | None = None
    is_json: bool = False
    is_canonical: bool = False
    budget: int | None = None
    shortest: tuple[int, ...] | None = ()
    guide: Guide = field(default_factory=Guide)
    triggers: tuple[bytes, ...] = ()
    usual: SeparatorModel = field(default_factory=SeparatorModel)
    document: Document = ""
    readable: Readable | None = None


@dataclass(slots=True)
class GrammarState:
    """State of a slot.

    `tail`: last bytes of the text while the marker is awaited, else None. `text`: last bytes of the document
    so far. `count`: tokens of the whole output. `outlook`: knowledge of the document's completion, if there
    is a budget. `is_done`: the text has ended, or has a token that the grammar forbids; later tokens are
    ignored. `separators` counts the separators of the document so far, except those of the `unread` tokens.
    """

    matcher: Matcher
    rules: GrammarRules
    tail: bytes | None = None
    text: bytes = b""
    count: int = 0
    outlook: Outlook | None = None
    is_done: bool = False
    separators: SeparatorModel | None = None
    unread: list[int] = field(default_factory=list)

    @classmethod
    def start(cls, matcher: Matcher, rules: GrammarRules) -> GrammarState:
        state = cls(matcher, rules, b"" if rules.marker else None)
        if state.tail is None:
            state.outlook = state._first_outlook(0)
        return state

    def fork(self) -> GrammarState:
        separators = self.separators and self.separators.copy()
        return replace(self, matcher=self.matcher.fork(), separators=separators, unread=[*self.unread])

    def free(self, drafts: tuple[int, ...]) -> int:
        """Return the number of drafts before the document; len(drafts) + 1 if it does not begin in them."""
        tail = self.tail
        for count, token in enumerate(drafts):
            if tail is None or self.rules.marker is None:
                return count
            tail = self.rules.marker.step(tail, token)
        return len(drafts) + (tail is not None)

    def ask(self, drafts: tuple[int, ...], row: int) -> Ask | None:
        """Return the request to the back end for drafts inside the document; its masks start at `row`."""
        if self.is_done:
            return None
        end = next((i for i, token in enumerate(drafts) if token in self.rules.ends), len(drafts))
        return Ask(self.matcher, drafts[:end], row)

    def commit(self, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            self.count += 1
            if self.is_done:
                continue
            if self.tail is not None and self.rules.marker is not None:
                self.tail = self.rules.marker.step(self.tail, token)
                if self.tail is None:
                    self.outlook = self._first_outlook(self.count)
            elif token in self.rules.ends or not self.matcher.accept(token):
                self.is_done = True
            else:
                self.text = self.rules.canonical.join(self.text, token)
                if self.rules.is_json:
                    self.unread.append(token)
                self.outlook = self._next_outlook(self.outlook, token, self._position, self.count)

    def _first_outlook(self, count: int) -> Outlook | None:
        rules = self.rules
        if rules.budget is None:
            return None
        return rules.narrower.start(rules.shortest, rules.budget - count, rules.guide.slack)

    def _next_outlook(
        self, before: Outlook | None, token: int, position: Callable[[], Position], count: int
    ) -> Outlook | None:
        """Return the outlook after `token`, the `count`-th token of the output."""
        rules = self.rules
        if before is None or rules.budget is None:
            return None
        return rules.narrower.after(before, token, position, count, rules.budget - count, rules.guide.slack)

    def _position(self) -> Position:
        rules, separators = self.rules, self._updated_separators()
        signs = separators.signs if separators else None
        return Position(self.matcher, self.text, signs, rules.canonical, rules.guide)

    def refine(self, masks: Tensor, drafts: tuple[int, ...], free: int) -> None:
        """Narrow masks [n, W] in place: to canonical tokens, to JSON that readers take, and to tokens that
        leave room for a completion.

        Mask i follows the first i of `drafts`, which are inside the document, after `free` tokens before it.
        """
        if not self.rules.is_canonical and self.outlook is None and self.rules.readable is None:
            return
        position, accepted = self._position(), 0
        outlook = self._first_outlook(self.count + free) if free else self.outlook
        try:
            for mask in masks:
                count = self.count + free + accepted
                self._refine(mask, position, outlook, count)
                if accepted == len(drafts):
                    break
                if not allows(mask, token := drafts[accepted]) or not position.accept(token):
                    break
                accepted += 1
                outlook = self._next_outlook(outlook, token, lambda: position, count + 1)
        finally:
            position.rollback(accepted)

    def _refine(self, mask: Tensor, position: Position, outlook: Outlook | None, count: int) -> None:
        rules, matcher = self.rules, self.matcher
        if rules.is_canonical and not matcher.is_complete():
            run = rules.canonical.tokenize_forced(position.text, matcher.forced())
            if run and allows(mask, run[0]):
                allow_only(mask, run[0])
                return
        if rules.readable is not None:
            rules.readable.restrict(mask, position, rules.document)
        if rules.budget is not None and outlook is not None and outlook.is_near:
            left = rules.budget - count
            rules.narrower.narrow(mask, position, outlook.path, left, rules.triggers, rules.guide.slack)

    def predicted(self, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Return forced tokens and guessed separators that come next; see predict_next."""
        if self.is_done or self.tail is not None:
            return ()
        count = self.count
        ahead_noise: Noise | None = (lambda ahead, ids: noise(count + ahead, ids)) if noise else None
        return predict_next(self._position(), self._updated_separators(), ahead_noise)

    def _updated_separators(self) -> SeparatorModel | None:
        """Return the separator counts, brought up to date with the unread tokens; None outside JSON."""
        if not self.rules.is_json:
            return None
        self.separators = self.separators or self.rules.usual.copy()
        for token in self.unread:
            self.separators.add(token, self.rules.canonical.token_bytes[token])
        self.unread.clear()
        return self.separators

    def completion(self, tokens: tuple[int, ...], limit: int) -> tuple[int, ...]:
        """Return at most `limit` tokens that complete the document after `tokens`; () if none are found."""
        later = self.fork()
        later.commit(tokens)
        if later.is_done or later.tail is not None:
            return ()
        return self.rules.narrower.shortest(later._position(), limit) or ()

    def limit(self, drafts: tuple[int, ...]) -> str:
        """Return the limit of the back end that leaves no token after these drafts; "" if none does."""
        inside = drafts[self.free(drafts) :]
        accepted = sum(takewhile(bool, map(self.matcher.accept, inside)))
        try:
            return self.matcher.limit() if accepted == len(inside) else ""
        finally:
            self.matcher.rollback(accepted)

    def preview(self, tokens: tuple[int, ...]) -> tuple[GrammarStatus, ...]:
        """Return the status after each of the tokens; the matcher is left unchanged."""
        free, accepted = min(self.free(tokens), len(tokens)), 0
        statuses = [GrammarStatus("free")] * free
        if free and self.free(tokens) == free:  # the last free token completes the marker
            statuses[-1] = self._status()
        try:
            for token in tokens[free:]:
                is_end = token in self.rules.ends
                if is_end or not self.matcher.accept(token):
                    is_legal = is_end and self.matcher.is_complete()
                    statuses.append(GrammarStatus("over" if is_legal else "broken"))
                    break
                accepted += 1
                statuses.append(self._status())
        finally:
            self.matcher.rollback(accepted)
        return tuple(statuses)

    def _status(self) -> GrammarStatus:
        if not self.matcher.is_complete():
            return GrammarStatus("open")
        return GrammarStatus("over" if self.matcher.is_over() else "complete")


_LIMIT = 32  # most tokens predicted
_MIN_PROBABILITY = 0.1  # lowest joint probability of the guesses


def predict_next(
    position: Position, separators: SeparatorModel | None, noise: Noise | None = None
) -> tuple[tuple[int, float], ...]:
    """Return pairs (token, probability) that come next: forced tokens and, in JSON, guessed separators.

    A pair's probability is that of its token and all tokens before it; 1 up to the first guess. Without
    `separators` nothing is guessed. The position has to be new; it is left unchanged.

    `noise(k, ids)` is the Gumbel noise of the k-th next token. It breaks ties between separators with similar
    counts, as in the sampler between tokens with similar logits.
    """
    probability, pairs = 1.0, list[tuple[int, float]]()
    try:
        while probability >= _MIN_PROBABILITY and len(pairs) < _LIMIT and not position.matcher.is_complete():
            forced = position.matcher.forced()
            if run := position.canonical.tokenize_forced(position.text, forced):
                if not all(map(position.accept, run)):
                    break
            else:
                probability *= _guess(position, separators, forced, noise)
            pairs += [(token, probability) for token in position.tokens[len(pairs) :]]
        return tuple(pair for pair in pairs[:_LIMIT] if pair[1] >= _MIN_PROBABILITY)
    finally:
        position.rollback(len(position.tokens))


def _guess(
    position: Position, separators: SeparatorModel | None, forced: bytes, noise: Noise | None
) -> float:
    """Accept the most probable token that starts with the forced bytes; return its probability, 0 if none."""
    if separators is None or position.signs is None or (position.signs.in_string and not forced):
        return 0.0
    weights, token_bytes = separators.weights(position.signs), position.canonical.token_bytes
    tokens = [token for token in weights if token_bytes[token].startswith(forced)]
    noises = noise(len(position.tokens), tokens) if noise and tokens else [0.0] * len(tokens)
    scores = [math.log(weights[token]) + noise_of for token, noise_of in zip(tokens, noises, strict=True)]
    ranked = sorted(zip(scores, tokens, strict=True), reverse=True)
    for rank, (score, token) in enumerate(ranked):
        if position.accept(token):
            return 1 / sum(math.exp(other - score) for other, _ in ranked[rank:])
    return 0.0


Document = Literal["", "json", "parts"]  # no JSON, a JSON document, or text with JSON in some parts

_NEAR = 32  # characters before MAX_NUMBER from which numbers are watched; more than a token has digits
# A number that may go on, at the end of a text, behind what may stand before a value.
_NUMBER = re.compile(rb"(?:^|[\s:,\[])(-?[0-9]+(?:\.[0-9]*)?(?:[eE](?P<sign>[+-]?)(?P<exponent>[0-9]*))?)\Z")
_LONG = rb"[eE][+-]?[0-9]{%d}" % (MAX_EXPONENT + 1)
_HALVES = {b"ud": rb"[89a-fA-F]", b"uD": rb"[89a-fA-F]", b"u": rb"[dD][89a-fA-F]", b"": rb"u[dD][89a-fA-F]"}
_HALF = rb"[^\\]*(?:\\\\)*\\u[dD][89a-fA-F]"


class Readable:
    """Forbids tokens in masks, but never all: a value that the grammar demands stays possible."""

    def __init__(self, token_bytes: Sequence[bytes], width: int) -> None:
        self._token_bytes = list(enumerate(token_bytes[:width]))
        # This letter is allowed in free text and in most strings, but in no number and no escape.
        self._letter = next((token for token, data in self._token_bytes if data == b"Z"), None)
        self._starting = lru_cache(maxsize=256)(self._mask_of_starting)

    def restrict(self, mask: Tensor, position: Position, document: Document) -> None:
        """Forbid in mask [W], in place, the tokens that make the document around the position unreadable."""
        for pattern in self._patterns(mask, position, document):
            gone = self._starting(pattern, len(mask))
            if gone is not None and (kept := mask & ~gone).any():
                mask.copy_(kept)

    def _patterns(self, mask: Tensor, position: Position, document: Document) -> Iterator[bytes]:
        """Yield patterns of the beginnings of the tokens to forbid."""
        if document == "parts":
            if self._letter is None or allows(mask, self._letter):
                return
            yield from _of_escapes(position.text)
            yield from _of_numbers(position.text)
        elif document == "json" and position.signs is not None:
            if (left := MAX_DEPTH - position.signs.depth) < _NEAR:
                yield rb"(?:[^\[{]*[\[{]){%d}" % (max(0, left) + 1)
            if position.signs.in_string:
                yield _HALF
                yield from _of_escapes(position.text)
            else:
                yield rb'[^"]*[0-9]' + _LONG
                yield from _of_numbers(position.text)

    def _mask_of_starting(self, pattern: bytes, size: int) -> Tensor | None:
        """Return the mask [size] of the tokens that begin with a match; None if there are none."""
        begins = re.compile(pattern).match
        ids = [token for token, data in self._token_bytes if begins(data)]
        return pack(torch.tensor(ids), size) if ids else None


def _of_escapes(text: bytes) -> Iterator[bytes]:
    """Yield what must not go on an escape that has begun at the end of the text."""
    begun = next(half for half in _HALVES if text.endswith(half))
    before = text[: len(text) - len(begun)]
    if (len(before) - len(before.rstrip(b"\\"))) % 2:
        yield _HALVES[begun]


def _of_numbers(text: bytes) -> Iterator[bytes]:
    number = _NUMBER.search(text[-MAX_NUMBER - 1 :])  # the rest would be read again for each token
    if number is None:
        return
    if (digits := number["exponent"]) is not None:
        yield rb"[0-9]{%d}" % (max(0, MAX_EXPONENT - len(digits)) + 1)
        if not digits and not number["sign"]:
            yield rb"[+-][0-9]{%d}" % (MAX_EXPONENT + 1)
        return
    yield rb"[0-9.]*" + _LONG
    if (left := MAX_NUMBER - len(number[1])) < _NEAR:
        yield rb"[0-9]{%d}" % (max(0, left) + 1)
