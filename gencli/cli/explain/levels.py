"""Levels of tokens, shown as colours or marks: by probability, rank, entropy or deciding stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gencli.core.events import TokenLogprobs
from gencli.explain.record import Record
from processors.explain.view import RowView

__all__ = ["LEVELS", "Facts", "Level", "Look", "Scale", "facts_of", "legend", "level", "level_of", "marked"]

Scale = Literal["probability", "rank", "entropy", "decided"]
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


# The level of a value is the number of bounds that it exceeds.
_BOUNDS: dict[str, tuple[float, float, float]] = {
    "probability": (0.5, 0.1, 0.02),
    "rank": (1, 5, 20),
    "entropy": (0.5, 1.5, 3),
    "decided": (0, 1, 2),
}
_LEGENDS: dict[str, tuple[str, str, str, str]] = {
    "probability": ("p > .5", ".1 to .5", ".02 to .1", "below .02"),
    "rank": ("first", "2 to 5", "6 to 20", "beyond"),
    "entropy": ("below .5 nats", ".5 to 1.5", "1.5 to 3", "3 and more"),
    "decided": ("by no stage", "one stage", "two", "more"),
}
_MEASURES = {
    "probability": "raw p",
    "rank": "rank under the model",
    "entropy": "entropy under the model",
    "decided": "decided by",
}


def level(scale: Scale, value: float | None) -> int:
    """Return the index into LEVELS of a value; the last one for None."""
    if scale == "probability":
        return sum((value or 0.0) < bound for bound in _BOUNDS[scale])
    if value is None:
        return len(LEVELS) - 1
    return sum(value >= bound if scale == "entropy" else value > bound for bound in _BOUNDS[scale])


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
    parts = (f"{_sign(one, look)} {text}".strip() for one, text in zip(LEVELS, _LEGENDS[scale], strict=True))
    return "   ".join(parts) + f"      ({_MEASURES[scale]})"


def _sign(one: Level, look: Look) -> str:
    if not one.left:
        return "plain"
    return {"marks": f"{one.left} {one.right}", "color": one.name, "plain": one.plain}[look]
