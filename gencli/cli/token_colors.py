"""Levels of tokens, shown as colours or marks: by probability, rank, entropy or deciding stages; the pens
that write them, and tables of log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Literal, Protocol

from gencli.cli.render import Sink, say, table
from gencli.core.events import Token, TokenLogprobs
from gencli.explain.token_levels import LEGENDS, Record, Scale, level
from gencli.results.run_results import PromptRow, Scores, score_rows
from gencli.text.detokenizer import TokenDecoder
from gencli.text.tokenizer import Tokenizer
from processors.row_view import RowView

Look = Literal["color", "plain", "marks"]  # colours; underlines and similar styles; marks around a token


@dataclass(frozen=True, slots=True)
class LevelStyle:
    """Appearance of a level: marks around a token, rich styles with and without colours, name of the colour.

    The colours have a contrast of at least 3.8 with black and with white.
    """

    left: str
    right: str
    color: str
    plain: str
    name: str


LEVELS: tuple[LevelStyle, ...] = (
    LevelStyle("", "", "", "", "plain"),
    LevelStyle("[", "]", "color(31)", "underline", "blue"),
    LevelStyle("<", ">", "color(130)", "bold underline", "orange"),
    LevelStyle("*", "*", "bold color(160)", "reverse", "red"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Measures of a token: probability, rank and entropy (nats) under the model, number of deciding stages.

    A masked token has no rank. A measure that was not taken is None.
    """

    p: float | None
    rank: int | None
    entropy: float | None = None
    decided: int | None = None


_MEASURES = {
    "probability": "raw p",
    "rank": "rank under the model",
    "entropy": "entropy under the model",
    "decided": "decided by",
}


def level_of(scale: Scale, facts: Facts) -> int:
    """Return the index into LEVELS of a token."""
    values = {"probability": facts.p, "rank": facts.rank, "entropy": facts.entropy, "decided": facts.decided}
    return level(scale, values[scale])


def facts_of(token: Record | RowView | TokenLogprobs) -> Facts:
    """Return the facts of a token, from its record, its explanation or its log-probability."""
    if isinstance(token, TokenLogprobs):
        return Facts(math.exp(token.chosen.logprob), token.rank)
    if isinstance(token, RowView):
        return Facts(token.raw.p, token.raw.rank, token.raw.entropy, len(token.decided_by))
    raw = token["raw"]
    return Facts(raw["p"], raw["rank"], raw["entropy"], len(token["decided_by"]))


def marked(text: str, number: int) -> str:
    """Return a token between the marks of a level; white space before the token stays outside.

    White space alone gets none, nor does a token without a text, such as the end of an answer.
    """
    if not text.strip():
        return text
    lead = text[: len(text) - len(text.lstrip())]
    return f"{lead}{LEVELS[number].left}{text[len(lead) :]}{LEVELS[number].right}"


def legend(scale: Scale, look: Look = "marks") -> str:
    """Return the legend of the levels in a look."""
    parts = []
    for shown, text in zip(LEVELS, LEGENDS[scale], strict=True):
        signs = {"marks": f"{shown.left} {shown.right}", "color": shown.name, "plain": shown.plain}
        parts.append(f"{signs[look] if shown.left else 'plain'} {text}".strip())
    return "   ".join(parts) + f"      ({_MEASURES[scale]})"


class Brush:
    """Writes pieces of text in the style of their levels.

    `look`: color; plain (underlined, bold, reversed) with NO_COLOR; marks on a terminal without styles, and
    without a terminal.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, codes = sink, sink.codes_of
        self._codes = [codes(shown.color) for shown in LEVELS]
        self.look: Look = "color"
        if not any(before for before, _ in self._codes):
            self.look = "marks"
        elif "" in (before for before, _ in self._codes[1:]):
            self._codes, self.look = [codes(shown.plain) for shown in LEVELS], "plain"

    def write(self, text: str, number: int) -> None:
        """Write a piece. Surrounding white space gets no marks or underlines."""
        if self.look == "marks":
            self._sink.write(marked(text, number))
            return
        body = text.strip() or text
        lead, _, end = text.partition(body)
        if lead:
            self._sink.write(lead)
        self._sink.write(body, self._codes[number] if body.strip() else ("", ""))
        if end:
            self._sink.write(end)


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
        levels = [level_of(self._scale, facts_of(token)) for token in event.views or event.logprobs]
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
        joined = "".join(piece for piece, _ in self._texts)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(joined, text, strict=False))
        start = 0
        for length, number in self._lengths(sum(1 for _ in same)):
            yield text[start : start + length], number
            start += length
        if text[start:]:
            yield text[start:], 0

    def _find(self, text: str) -> None:
        """Drop text that is not written: reasoning with its marker, and white space before a result."""
        if self._after:
            joined = "".join(piece for piece, _ in self._texts)
            before, marker, _ = joined.partition(self._after)
            self._drop(len(before + marker) if marker else 0)
            self._after = ""
            joined = "".join(piece for piece, _ in self._texts)
            self._drop(max(0, joined.find(text.rstrip("\n"))))

    def _drop(self, count: int) -> None:
        for _ in self._lengths(count):
            pass

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


class Pen(Protocol):
    """Interface that writes the text of samples, part by part and in order."""

    def write(self, row: PromptRow, sample: int, text: str) -> None:
        """Write the next part of the text of a sample."""
        ...


class PlainPen:
    """Writes the parts as they are."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, row: PromptRow, sample: int, text: str) -> None:
        """Write the next part."""
        self._sink.write(text)


def show_scores(scores: Scores, sample: int, tokenizer: Tokenizer, title: str = "") -> None:
    """Write the log-probabilities of a sample, with the prompt's before the first sample, if any."""
    parts = [("prompt", scores.prompt)] if scores.prompt and sample == 0 else []
    parts += [("output", output)] if (output := scores.of(sample)) else []
    if parts and title:
        say(title)
    for name, entries in parts:
        if len(parts) > 1:
            say(f"{name}:")
        say(table(score_rows(entries, tokenizer)).rstrip("\n"))
