"""Watches for the tags and texts of conditions in an output, token by token, with immutable states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from processors.base import Vocabulary
from processors.conditions.when import Tags
from processors.marker import ends_with

__all__ = ["AfterState", "AfterText", "Spelling", "TagState", "TagWatch"]


class Spelling:
    """The bytes of each token; a special token has the bytes of its text, so that it can be a tag."""

    def __init__(self, vocabulary: Vocabulary, tags: Iterable[str]) -> None:
        self._bytes = vocabulary.token_bytes
        self._special = dict[int, bytes]()
        for tag in filter(None, tags):
            ids = vocabulary.encode(tag, special=False)
            if len(ids) == 1 and not self.of(ids[0]):
                self._special[ids[0]] = tag.encode()

    def of(self, token: int) -> bytes:
        """Return the bytes of a token; b"" for an id that the tokenizer lacks."""
        if found := self._special.get(token):
            return found
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def ends(self, prompt: Sequence[int], text: bytes) -> bool:
        """Whether a prompt ends with a text, white space aside."""
        return ends_with(prompt, text, self.of)


class TagState(NamedTuple):
    """Whether the output is between the tags, and its last bytes, in which the next tag may begin."""

    is_inside: bool
    end: bytes = b""


class TagWatch:
    """Whether an output is between a start tag and the next end tag; tags may repeat.

    The state changes after a tag's last token. With an empty start tag the output begins inside, once,
    unless the prompt ends with the end tag.
    """

    def __init__(self, tags: Tags, spelling: Spelling) -> None:
        self._start, self._end = (tag.encode() for tag in tags)
        self._spelling = spelling
        self._kept = max(len(self._start), len(self._end)) - 1

    def first(self, prompt: Sequence[int]) -> TagState:
        """Return the state of an empty output: inside if the last tag in the prompt is a start tag."""
        if not self._start:
            return TagState(not self._spelling.ends(prompt, self._end))
        text = b"".join(map(self._spelling.of, prompt))
        start, end = text.rfind(self._start), text.rfind(self._end)
        return TagState(start > end)

    def next(self, state: TagState, token: int) -> TagState:
        """Return the state after one more token."""
        is_inside, text = state.is_inside, state.end + self._spelling.of(token)
        while tag := self._end if is_inside else self._start:
            at = text.find(tag)
            if at < 0:
                break
            is_inside, text = not is_inside, text[at + len(tag) :]
        return TagState(is_inside, _end_of(text, self._kept))


class AfterState(NamedTuple):
    """Whether the text has occurred; `rest`: last bytes of the output, or the bytes after the text."""

    is_over: bool
    rest: bytes = b""


class AfterText:
    """Whether a text has occurred in an output."""

    def __init__(self, text: str, spelling: Spelling) -> None:
        self._text, self._spelling = text.encode(), spelling

    def first(self, prompt: Sequence[int]) -> AfterState:
        """Return the state of an empty output; a prompt that ends with the text counts as well."""
        return AfterState(self._spelling.ends(prompt, self._text))

    def next(self, state: AfterState, token: int) -> AfterState:
        """Return the state after one more token. `rest`: the bytes that the token adds after the text."""
        piece = self._spelling.of(token)
        if state.is_over:
            return AfterState(True, piece)
        text = state.rest + piece
        at = text.find(self._text)
        if at < 0:
            return AfterState(False, _end_of(text, len(self._text) - 1))
        return AfterState(True, text[at + len(self._text) :])


def _end_of(text: bytes, count: int) -> bytes:
    return text[len(text) - count :] if 0 < count < len(text) else text if count else b""
