"""A lesson as text: a column of bars for each stage, and the effect of each stage in a sentence."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gencli.cli.explain.shown import probability
from gencli.cli.terminal.tables import table

if TYPE_CHECKING:
    from gencli.explain.lesson import Column, Lesson

__all__ = ["lesson_page"]

_CELLS = 10  # cells of a bar
_SAME = 1e-6  # difference due to rounding
_WIDTH = 80  # width of a line of words
_BESIDE = 4  # columns in a row
_DRAWS = {
    "greedy": "The draw is greedy: it takes the most likely word",
    "gumbel": "A random number is added to each word's logit, and the largest sum wins; a word wins as "
    "often as its probability says",
    "multinomial": "A random number between 0 and 1 falls into one word's share",
}


def lesson_page(lesson: Lesson, text: str, words: Sequence[str]) -> str:
    """Return the page: the probabilities, a sentence for each stage, the drawn word."""
    parts = [f"{text} ...\nThe model gives each next word a probability. The stages change them.\n"]
    first, *rest = lesson.columns
    for start in range(0, max(len(rest), 1), _BESIDE - 1):
        parts.append(table(_rows([first, *rest[start : start + _BESIDE - 1]], words)))
        first = rest[min(start + _BESIDE - 2, len(rest) - 1)] if rest else first
    if rest:
        pairs = zip(lesson.columns, rest, strict=False)
        parts.append(
            "".join(_line(f"{after.title}: {_told(before, after, words)}") for before, after in pairs)
        )
    parts.append(_line(f"{_DRAWS[lesson.draw]}: {lesson.drawn.strip()}."))
    return "\n".join(parts)


def _line(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ") + "\n"


def _rows(columns: Sequence[Column], words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield "", *(column.title for column in columns)
    most = max(max(column.p) for column in columns)
    for at, word in enumerate(words):
        yield word, *(_cell(column.p[at], most) for column in columns)


def _cell(p: float, most: float) -> str:
    """Return a probability and its bar; "" for a removed word."""
    return f"{probability(p):<5} {'█' * round(_CELLS * p / most)}".rstrip() if p > 0 else ""


def _told(before: Column, after: Column, words: Sequence[str]) -> str:
    """Return the general effect of the stage, and its effect here."""
    gone = [word.strip() for word, old, new in zip(words, before.p, after.p, strict=True) if old > 0 == new]
    if gone:
        left = sum(p > 0 for p in after.p)
        did = f"Here it removes {', '.join(gone)}; {left} {'words are' if left > 1 else 'word is'} left."
    elif max(abs(new - old) for old, new in zip(before.p, after.p, strict=True)) < _SAME:
        did = "Here it changes nothing."
    else:
        moved = max(range(len(words)), key=lambda at: abs(after.p[at] - before.p[at]))
        shown = f"{probability(before.p[moved])} -> {probability(after.p[moved])}"
        did = f"Here most of all it moves {words[moved].strip()}, {shown}."
    return f"{after.about} {did}"
