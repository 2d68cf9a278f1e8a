"""Levels of tokens, shown as colours or marks: by probability, rank, entropy or deciding stages; the pens
that write them, and tables of log-probabilities.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Any, Literal

from gencli.cli.render import Sink, say, table
from gencli.core.events import Token, TokenLogprobs
from gencli.explain.token_record import LEGENDS, Record, Scale, level
from gencli.results.run_results import Scores, score_rows
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


_MEASURES = {
    "probability": "raw p",
    "rank": "rank under the model",
    "entropy": "entropy under the model",
    "decided": "decided by",
}


def level_of(scale: Scale, token: Record | RowView | TokenLogprobs) -> int:
    """Return the index into LEVELS of a token, from its record, its explanation or its log-probability.

    Measures are probability, rank (none for a masked token) and entropy (nats) under the model, and the
    number of deciding stages; those that were not taken are missing.
    """
    if isinstance(token, TokenLogprobs):
        measures: dict[str, Any] = {"probability": math.exp(token.chosen.logprob), "rank": token.rank}
    elif isinstance(token, RowView):
        raw, stages = token.raw, token.decided_by
        measures = {"probability": raw.p, "rank": raw.rank, "entropy": raw.entropy, "decided": len(stages)}
    else:
        raw, stages = token["raw"], token["decided_by"]
        measures = {"probability": raw["p"], **raw, "decided": len(stages)}
    return level(scale, measures.get(scale))


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
        body = text.strip()
        lead, _, end = text.partition(body) if body else (text, "", "")
        for piece, codes in ((lead, ("", "")), (body, self._codes[number]), (end, ("", ""))):
            if piece:
                self._sink.write(piece, codes)


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
        levels = [level_of(self._scale, token) for token in event.views or event.logprobs]
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
        if self._after:  # what is not written: reasoning with its marker, and white space before a result
            joined = "".join(piece for piece, _ in self._texts)
            before, marker, _ = joined.partition(self._after)
            deque(self._lengths(len(before + marker) if marker else 0), maxlen=0)
            self._after = ""
            joined = "".join(piece for piece, _ in self._texts)
            deque(self._lengths(max(0, joined.find(text.rstrip("\n")))), maxlen=0)
        joined = "".join(piece for piece, _ in self._texts)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(joined, text, strict=False))
        start = 0
        for length, number in self._lengths(sum(1 for _ in same)):
            yield text[start : start + length], number
            start += length
        if text[start:]:
            yield text[start:], 0

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


def show_scores(
    scores: Scores, sample: int, tokenizer: Tokenizer, title: str = "", *, has_output: bool
) -> None:
    """Write the log-probabilities of a sample if `has_output`; before the first one's those of the prompt."""
    parts = [("prompt", scores.prompt)] if scores.prompt and sample == 0 else []
    parts += [("output", output)] if has_output and (output := scores.of(sample)) else []
    if parts and title:
        say(title)
    for name, entries in parts:
        if len(parts) > 1:
            say(f"{name}:")
        say(table(score_rows(entries, tokenizer)).rstrip("\n"))
