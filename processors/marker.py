"""Markers: texts that divide a prompt or an output, such as the tags of thinking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from processors.base import Vocabulary

__all__ = ["Marker", "ends_with"]

_SPACES = 64  # white-space tokens that may follow the text


@dataclass(frozen=True, slots=True)
class Marker:
    """A text, found in any tokenization or as one special token."""

    text: bytes
    ids: tuple[int, ...]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> Marker:
        """Build for a vocabulary."""
        ids = vocabulary.encode(text, special=False)
        return cls(text.encode(), tuple(ids) if len(ids) == 1 else (), vocabulary)

    def ends(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends with the text, white space aside."""
        known = self.vocabulary.token_bytes
        return ends_with(
            prompt,
            self.text,
            lambda token: self.text if token in self.ids else known[token] if token < len(known) else b"",
        )

    def step(self, tail: bytes, token: int) -> bytes | None:
        """Return the last bytes of the text after one more token; None if the marker is complete."""
        known = self.vocabulary.token_bytes
        text = tail + (known[token] if token < len(known) else b"")
        return None if token in self.ids or self.text in text else text[1 - len(self.text) or len(text) :]


def ends_with(prompt: Sequence[int], text: bytes, bytes_of: Callable[[int], bytes]) -> bool:
    """Whether the prompt ends with the text, white space aside.

    `bytes_of` returns the bytes of a token: of a special token its text if that is the text looked for, or
    else b"", beyond which nothing is looked at.
    """
    end = b""
    for token in reversed(prompt[-_SPACES - len(text) :]):
        data = bytes_of(token)
        if not data:
            break
        end = data + end
    return end.endswith(text) or (bool(text.strip()) and end.rstrip().endswith(text.rstrip()))
