"""Where one request stands in its grammar: before the marker, inside the document, or behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from torch import Tensor

from processors.base import GrammarStatus, Noise, Vocabulary
from processors.grammar.backends.base import Ask, Matcher
from processors.grammar.backends.bits import allow_only, allows
from processors.grammar.state.closing import Spot
from processors.grammar.state.forced_tokens import CanonicalTokenizer
from processors.grammar.state.json_statistics import SeparatorModel
from processors.grammar.state.narrowing import Narrower, Outlook
from processors.grammar.state.predict import predict_next

__all__ = ["GrammarState", "Marker", "Rules"]


@dataclass(frozen=True, slots=True)
class Marker:
    """The text behind which the document begins, however it is cut into tokens, or as one special token."""

    text: bytes
    ids: tuple[int, ...]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> Marker:
        """The marker as this vocabulary writes it."""
        ids = vocabulary.encode(text, special=False)
        return cls(text.encode(), tuple(ids) if len(ids) == 1 else (), vocabulary)

    def step(self, tail: bytes, token: int) -> bytes | None:
        """The end of the text after one more token; None if the marker is complete."""
        known = self.vocabulary.token_bytes
        text = tail + (known[token] if token < len(known) else b"")
        return None if token in self.ids or self.text in text else text[1 - len(self.text) or len(text) :]


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What holds for one request all along.

    `ends` are the ids that end a text. `is_canonical`: forced text is cut into tokens as the tokenizer
    would. `budget`: the most tokens of the output, if what cannot be ended within them is to be avoided;
    `shortest` then completes the whole document, and its strings may end with one of the `samples`. `usual`
    are the habits of JSON of which nothing is known.
    """

    speller: CanonicalTokenizer
    narrower: Narrower
    ends: frozenset[int]
    marker: Marker | None = None
    is_json: bool = False
    is_canonical: bool = False
    budget: int | None = None
    shortest: tuple[int, ...] = ()
    samples: tuple[str, ...] = ()
    usual: SeparatorModel = field(default_factory=SeparatorModel)


@dataclass(slots=True)
class GrammarState:
    """A slot's state. `tail` is the text so far while the marker is awaited, else None.

    `text` is the document so far, or the end of it, `count` the number of tokens of the whole output,
    `outlook` what is known of the document's end, if the limit of tokens is in view. `is_done` says that the
    text has ended, or holds a token that the grammar does not allow; nothing that comes then is used.
    `habits` are how the parts of the document have followed each other, but for the tokens that are `unread`.
    """

    matcher: Matcher
    rules: Rules
    tail: bytes | None = None
    text: bytes = b""
    count: int = 0
    outlook: Outlook | None = None
    is_done: bool = False
    habits: SeparatorModel | None = None
    unread: list[int] = field(default_factory=list)

    @classmethod
    def start(cls, matcher: Matcher, rules: Rules) -> GrammarState:
        """At the beginning of the output."""
        place = cls(matcher, rules, b"" if rules.marker else None)
        if place.tail is None:
            place.outlook = place._first_outlook(0)
        return place

    def fork(self) -> GrammarState:
        """An independent copy."""
        habits = self.habits and self.habits.copy()
        return replace(self, matcher=self.matcher.fork(), habits=habits, unread=[*self.unread])

    def free(self, drafts: tuple[int, ...]) -> int:
        """How many of the drafts come before the document; more than there are if it does not begin."""
        tail = self.tail
        for count, token in enumerate(drafts):
            if tail is None or self.rules.marker is None:
                return count
            tail = self.rules.marker.step(tail, token)
        return len(drafts) + (tail is not None)

    def ask(self, drafts: tuple[int, ...], row: int) -> Ask | None:
        """What to ask the back end for the drafts inside the document, the first of them seen by `row`."""
        if self.is_done:
            return None
        end = next((i for i, token in enumerate(drafts) if token in self.rules.ends), len(drafts))
        return Ask(self.matcher, drafts[:end], row)

    def commit(self, tokens: tuple[int, ...]) -> None:
        """These tokens are final."""
        for token in tokens:
            self.count += 1
            self._commit(token)

    def _commit(self, token: int) -> None:
        if self.is_done:
            return
        if self.tail is not None and self.rules.marker is not None:
            self.tail = self.rules.marker.step(self.tail, token)
            if self.tail is None:
                self.outlook = self._first_outlook(self.count)
        elif token in self.rules.ends or not self.matcher.accept(token):
            self.is_done = True
        else:
            self.text = self.rules.speller.join(self.text, token)
            if self.rules.is_json:
                self.unread.append(token)
            self.outlook = self._next_outlook(self.outlook, token, self._spot, self.count)

    def _first_outlook(self, count: int) -> Outlook | None:
        """The outlook where the document begins."""
        budget = self.rules.budget
        return None if budget is None else self.rules.narrower.start(self.rules.shortest, budget - count)

    def _next_outlook(
        self, before: Outlook | None, token: int, spot: Callable[[], Spot], count: int
    ) -> Outlook | None:
        """The outlook after `count` tokens, of which this is the last."""
        if before is None or self.rules.budget is None:
            return None
        return self.rules.narrower.after(before, token, spot, count, self.rules.budget - count)

    def _spot(self) -> Spot:
        rules, habits = self.rules, self._read()
        signs = habits.signs if habits else None
        return rules.narrower.closer.spot(self.matcher, self.text, signs, rules.samples)

    def refine(self, masks: Tensor, drafts: tuple[int, ...], free: int) -> None:
        """Narrow the masks [n, W] inside the document: forced text to its tokens, and to what can be ended.

        The masks are those of the prefixes of `drafts`, which come behind `free` tokens before the document.
        """
        if not self.rules.is_canonical and self.outlook is None:
            return
        spot, accepted = self._spot(), 0
        outlook = self._first_outlook(self.count + free) if free else self.outlook
        try:
            for mask in masks:
                count = self.count + free + accepted
                self._refine(mask, spot, outlook, count)
                if accepted == len(drafts) or not spot.accept(token := drafts[accepted]):
                    break
                accepted += 1
                outlook = self._next_outlook(outlook, token, lambda: spot, count + 1)
        finally:
            spot.rollback(accepted)

    def _refine(self, mask: Tensor, spot: Spot, outlook: Outlook | None, count: int) -> None:
        rules, matcher = self.rules, self.matcher
        if rules.is_canonical and not matcher.is_complete():
            run = rules.speller.spell(spot.text, matcher.forced())
            if run and allows(mask, run[0]):
                return allow_only(mask, run[0])
        if rules.budget is not None and outlook is not None and outlook.is_near:
            rules.narrower.narrow(mask, spot, outlook.path, rules.budget - count)
        return None

    def ahead(self, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """The tokens that have to come next, and beyond them those that likely will; see look_ahead."""
        if self.is_done or self.tail is not None:
            return ()
        here = _shifted(noise, self.count) if noise else None
        return predict_next(self.matcher, self.rules.speller, self.text, self._read(), here)

    def _read(self) -> SeparatorModel | None:
        """The habits of the text, with the tokens that have come since it was asked for them."""
        if not self.rules.is_json:
            return None
        self.habits = self.habits or self.rules.usual.copy()
        for token in self.unread:
            self.habits.add(token, self.rules.speller.token_bytes[token])
        self.unread.clear()
        return self.habits

    def closing(self, tokens: tuple[int, ...], most: int) -> tuple[int, ...]:
        """What completes the open document behind these tokens; () if it is not open, or nothing does."""
        later = self.fork()
        later.commit(tokens)
        if later.is_done or later.tail is not None:
            return ()
        return self.rules.narrower.shortest(later._spot(), most) or ()

    def limit(self, drafts: tuple[int, ...]) -> str:
        """The limit of the back end that leaves no token behind these drafts; "" if none does."""
        with self._looking() as walk:
            return self.matcher.limit() if all(map(walk, drafts[self.free(drafts) :])) else ""

    def preview(self, tokens: tuple[int, ...]) -> tuple[GrammarStatus, ...]:
        """Where the text would stand after each of the tokens; the matcher is afterwards what it was."""
        free = min(self.free(tokens), len(tokens))
        found = [GrammarStatus("free")] * free
        if free and self.free(tokens) == free:  # the marker is complete with the last free token
            found[-1] = self._stand()
        with self._looking() as walk:
            for token in tokens[free:]:
                if token in self.rules.ends:
                    is_legal = self.matcher.is_complete()
                    found.append(GrammarStatus("over" if is_legal else "broken"))
                    break
                if not walk(token):
                    found.append(GrammarStatus("broken"))
                    break
                found.append(self._stand())
        return tuple(found)

    def _stand(self) -> GrammarStatus:
        if not self.matcher.is_complete():
            return GrammarStatus("open")
        return GrammarStatus("over" if self.matcher.is_over() else "complete")

    @contextmanager
    def _looking(self) -> Iterator[_Walk]:
        """Go on with the matcher, and find it afterwards as it was."""
        walk = _Walk(self.matcher)
        try:
            yield walk
        finally:
            self.matcher.rollback(walk.accepted)


def _shifted(noise: Noise, count: int) -> Noise:
    return lambda ahead, ids: noise(count + ahead, ids)


class _Walk:
    """Gives tokens to a matcher and counts those that it takes."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher, self.accepted = matcher, 0

    def __call__(self, token: int) -> bool:
        """Whether the token is legal."""
        is_legal = self.matcher.accept(token)
        self.accepted += is_legal
        return is_legal
