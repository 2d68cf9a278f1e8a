"""The option `constrain_after`: text up to a marker is reasoning, text after it is the result."""

from __future__ import annotations

from dataclasses import dataclass

from gencli.errors import ConfigError

__all__ = ["Pieces", "ThinkingSplitter", "split_thinking"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text in two parts: thinking, with the marker, and the result."""

    thinking: str = ""
    rest: str = ""


def split_thinking(text: str, marker: str) -> Pieces:
    """Split a finished text at the marker. Without the marker all of it is reasoning."""
    _check(marker)
    before, found, rest = text.partition(marker)
    return Pieces(before + found, rest)


class ThinkingSplitter:
    """Splits a stream at the first marker; holds back only a possible beginning of the marker."""

    def __init__(self, marker: str) -> None:
        _check(marker)
        self._marker, self._held, self._is_over = marker, "", False

    @property
    def is_over(self) -> bool:
        """Whether the marker was found."""
        return self._is_over

    def feed(self, text: str) -> Pieces:
        """Add a piece of text; return the text that it makes certain."""
        if self._is_over:
            return Pieces(rest=text)
        text = self._held + text
        if self._marker in text:
            self._held, self._is_over = "", True
            return split_thinking(text, self._marker)
        held = _overlap(text, self._marker)
        self._held = text[len(text) - held :]
        return Pieces(thinking=text[: len(text) - held])

    def finish(self) -> Pieces:
        """Return the held text when the stream ends."""
        held, self._held = self._held, ""
        return Pieces(thinking=held)


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest suffix of the text that is a proper prefix of the marker."""
    longest = min(len(text), len(marker) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)


def _check(marker: str) -> None:
    if not marker:
        hint = "Give the text that ends the thinking, such as </think>."
        raise ConfigError("The marker to constrain after is empty.", hint=hint)
