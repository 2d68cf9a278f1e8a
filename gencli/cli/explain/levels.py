"""Levels of tokens, shown as colours or marks: by probability, rank, entropy or deciding stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gencli.core.events import TokenLogprobs
from gencli.explain.levels import LEGENDS, Scale, level
from gencli.explain.record import Record
from processors.explain.view import RowView

__all__ = ["LEVELS", "Facts", "Level", "Look", "facts_of", "legend", "level_of", "marked"]

Look = Literal["color", "plain", "marks"]  # colours; underlines and similar styles; marks around a token


@dataclass(frozen=True, slots=True)
class Level:
    """Appearance of a level: marks around a token, rich styles with and without colours, name of the colour.

    The colours have a contrast of at least 3.8 with black and with white.
    """

    left: str
    right: str
    color: str
    plain: str
    name: str


LEVELS: tuple[Level, ...] = (
    Level("", "", "", "", "plain"),
    Level("[", "]", "color(31)", "underline", "blue"),
    Level("<", ">", "color(130)", "bold underline", "orange"),
    Level("*", "*", "bold color(160)", "reverse", "red"),
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
    values = {
        "probability": facts.p,
        "rank": facts.rank,
        "entropy": facts.entropy,
        "decided": facts.decided,
    }
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
    parts = (f"{_sign(one, look)} {text}".strip() for one, text in zip(LEVELS, LEGENDS[scale], strict=True))
    return "   ".join(parts) + f"      ({_MEASURES[scale]})"


def _sign(one: Level, look: Look) -> str:
    if not one.left:
        return "plain"
    return {"marks": f"{one.left} {one.right}", "color": one.name, "plain": one.plain}[look]
