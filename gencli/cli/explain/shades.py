"""Assigns the parts of a written text to tokens, to colour them by level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile, zip_longest

from gencli.cli.explain.levels import facts_of, level_of
from gencli.core.events import Token
from gencli.explain.levels import Scale
from gencli.text.detokenizer import TokenDecoder

__all__ = ["Shades"]


class Shades:
    """The levels of one sample's text, from its tokens.

    `decoder`: a new decoder for the text after the prompt. Text is written later than its tokens arrive:
    because of stop strings, incomplete characters, or a check of the whole text. So tokens are held until
    their text is written. `after`: the written text begins after the first occurrence of this text.
    """

    def __init__(self, decoder: TokenDecoder, scale: Scale, *, after: str = "") -> None:
        self._decoder, self._scale, self._after = decoder, scale, after
        self._tokens: list[tuple[int, int]] = []  # id and level of tokens that are not decoded yet
        self._texts: list[tuple[str, int]] = []  # text and level of tokens that are not written yet

    def add(self, event: Token) -> None:
        """Add the tokens of an event. A token without measures has level 0: the model did not choose it."""
        levels = [level_of(self._scale, facts_of(one)) for one in event.views or event.logprobs]
        self._tokens += zip_longest(event.ids, levels[: len(event.ids)], fillvalue=0)

    def keep(self, count: int) -> None:
        """Keep only the last `count` tokens, those of the last attempt; none of them is written yet."""
        self._tokens = self._tokens[max(0, len(self._tokens) - count) :]

    def spans(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield the next part of the written text in pieces, with their levels.

        The joined pieces are the text. Text without a token, such as a final newline, has level 0.
        """
        self._texts += ((self._decoder.push(token), number) for token, number in self._tokens)
        self._tokens = []
        self._find(text)
        rest = text
        for length, number in self._taken(text):
            yield rest[:length], number
            rest = rest[length:]
        if rest:
            yield rest, 0

    def _find(self, text: str) -> None:
        """Drop text that is not written: reasoning with its marker, and white space before a result."""
        if self._after:
            joined = "".join(piece for piece, _ in self._texts)
            before, found, _ = joined.partition(self._after)
            self._drop(len(before + found) if found else 0)
            self._after = ""
            joined = "".join(piece for piece, _ in self._texts)
            self._drop(max(0, joined.find(text.rstrip("\n"))))

    def _drop(self, count: int) -> None:
        for _ in self._lengths(count):
            pass

    def _taken(self, text: str) -> Iterable[tuple[int, int]]:
        """Take the tokens whose joined text is a prefix of the given text; yield lengths and levels."""
        joined = "".join(piece for piece, _ in self._texts)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(joined, text, strict=False))
        return self._lengths(sum(1 for _ in same))

    def _lengths(self, count: int) -> Iterator[tuple[int, int]]:
        """Take `count` characters; yield lengths and levels of their pieces."""
        done = 0
        while count:
            piece, number = self._texts[done]
            length = min(count, len(piece))
            count -= length
            if length < len(piece):
                self._texts[done] = piece[length:], number
            else:
                done += 1
            if length:
                yield length, number
        del self._texts[:done]
