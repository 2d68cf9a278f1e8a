"""`Conditions`: which conditions of a slot hold for the next token, computed on the host.

The result depends only on the committed tokens and a row's drafts. It needs no device synchronisation, and is
the same for every batch and with or without drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from processors.base import Vocabulary
from processors.conditions.paths import JsonPaths, JsonState
from processors.conditions.texts import AfterState, AfterText, Spelling, TagState, TagWatch
from processors.conditions.when import Tags, When
from processors.errors import ChainError

__all__ = ["Conditions"]


class _State(NamedTuple):
    """Number of output tokens, and the states of the watches for tags, texts and JSON documents."""

    length: int
    tags: tuple[TagState, ...]
    afters: tuple[AfterState, ...]
    documents: tuple[JsonState, ...]


class _Rules:
    """The conditions of a request, and the watches that they need, each once."""

    def __init__(self, whens: Sequence[When], vocabulary: Vocabulary | None) -> None:
        self._whens = whens
        pairs = [pair for when in whens for pair in (when.inside, when.outside) if pair]
        self._pairs = tuple(dict.fromkeys(pairs))
        with_path = [when for when in whens if when.path is not None]
        texts = [when.after for when in whens if when.after or when.path is not None]
        self._texts = tuple(dict.fromkeys(texts))  # "" stands for a document that begins with the output
        self._paths = {
            text: tuple(dict.fromkeys(when.path for when in with_path if when.after == text))
            for text in dict.fromkeys(when.after for when in with_path)
        }
        self._tags, self._afters, self._documents = list[TagWatch](), list[AfterText](), list[JsonPaths]()
        if any(when.needs_text for when in whens):
            if vocabulary is None:
                raise ChainError("A condition of a stage is about the text, but there is no tokenizer.")
            spelling = Spelling(vocabulary, [*(tag for pair in self._pairs for tag in pair), *self._texts])
            self._tags = [TagWatch(pair, spelling) for pair in self._pairs]
            self._afters = [AfterText(text, spelling) for text in self._texts]
            self._documents = [
                JsonPaths([p for p in paths if p is not None]) for paths in self._paths.values()
            ]

    def first(self, prompt: Sequence[int]) -> _State:
        """Return the state of an empty output."""
        return _State(
            0,
            tuple([watch.first(prompt) for watch in self._tags]),
            tuple([watch.first(prompt) for watch in self._afters]),
            tuple([watch.first() for watch in self._documents]),
        )

    def next(self, state: _State, token: int) -> _State:
        """Return the state after one more token."""
        tags = [watch.next(one, token) for watch, one in zip(self._tags, state.tags, strict=True)]
        afters = [watch.next(one, token) for watch, one in zip(self._afters, state.afters, strict=True)]
        documents = list[JsonState]()
        for watch, text, one in zip(self._documents, self._paths, state.documents, strict=True):
            begun = afters[self._texts.index(text)]
            documents.append(watch.next(one, begun.rest) if begun.is_over else one)
        return _State(state.length + 1, tuple(tags), tuple(afters), tuple(documents))

    def hold(self, state: _State) -> tuple[bool, ...]:
        """Return for each condition whether it holds for the next token."""
        return tuple([self._holds(when, state) for when in self._whens])

    def _holds(self, when: When, state: _State) -> bool:
        if state.length < when.begin or (when.end is not None and state.length >= when.end):
            return False
        if when.inside and not self._is_inside(when.inside, state):
            return False
        if when.outside and self._is_inside(when.outside, state):
            return False
        if when.path is None:
            return not when.after or state.afters[self._texts.index(when.after)].is_over
        begun = state.afters[self._texts.index(when.after)]
        number = list(self._paths).index(when.after)
        place = self._paths[when.after].index(when.path)
        return begun.is_over and self._documents[number].holds(state.documents[number], place)

    def _is_inside(self, tags: Tags, state: _State) -> bool:
        return state.tags[self._pairs.index(tags)].is_inside


class _Slot:
    """The state of a slot, and cached states after the drafts requested since the last commit."""

    def __init__(self, rules: _Rules, state: _State) -> None:
        self.rules = rules
        self.begin(state)

    def begin(self, state: _State) -> None:
        self.state = state
        self._after: dict[tuple[int, ...], tuple[_State, tuple[bool, ...]]] = {}

    def hold(self, drafts: tuple[int, ...]) -> tuple[bool, ...]:
        return self._known(drafts)[1]

    def commit(self, tokens: Sequence[int]) -> None:
        drafts = tuple(tokens[:-1])  # the rows of the step have often computed these states already
        state = self._known(drafts)[0] if tokens else self.state
        self.begin(self.rules.next(state, tokens[-1]) if tokens else state)

    def _known(self, drafts: tuple[int, ...]) -> tuple[_State, tuple[bool, ...]]:
        found = self._after.get(drafts)
        if found is None:
            size, state = len(drafts), self.state
            while size and drafts[: size - 1] not in self._after:
                size -= 1
            if size:
                state, size = self._after[drafts[: size - 1]][0], size - 1
            for end in range(size, len(drafts)):
                state = self.rules.next(state, drafts[end])
            found = self._after[drafts] = state, self.rules.hold(state)
        return found


class Conditions:
    """The conditions of all slots that have any."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        self.slots: dict[int, _Slot] = {}  # a plain attribute, as every step checks whether it is empty

    def admit(self, slot: int, whens: Sequence[When], prompt: Sequence[int]) -> None:
        """Set the conditions of a slot. ChainError for a condition on text without a tokenizer."""
        rules = _Rules(whens, self._vocabulary)
        self.slots[slot] = _Slot(rules, rules.first(prompt))

    def hold(self, slot: int, drafts: tuple[int, ...] = ()) -> tuple[bool, ...]:
        """Return for each condition of the slot whether it holds for the token after these drafts."""
        return self.slots[slot].hold(drafts)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by tokens that were appended to the output."""
        self.slots[slot].commit(tokens)

    def fork(self, source: int, target: int) -> None:
        """Make the target slot an independent copy of the source."""
        self.slots[target] = _Slot(self.slots[source].rules, self.slots[source].state)

    def release(self, slot: int) -> None:
        """Drop the slot; no error if it has no conditions."""
        self.slots.pop(slot, None)
