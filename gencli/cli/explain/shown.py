"""Formatting of numbers and texts of records for a terminal."""

from __future__ import annotations

from typing import Any

from gencli.text.escapes import escape_controls

__all__ = ["escaped", "probability", "quoted", "rank", "text_before"]

_MOST = 24  # characters of a token
_BEFORE = 60  # characters of the text before it


def probability(p: float | None) -> str:
    """Return 1.000, .372, .0004 or 2e-05; "-" for None."""
    if p is None:
        return "-"
    if p == 0:
        return "0"
    text = f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
    return text.removeprefix("0")


def quoted(text: str) -> str:
    """Return a token in quotes, with control characters and newlines as escapes, shortened if long."""
    shown = escaped(text).replace('"', '\\"')
    return f'"{shown}"' if len(shown) <= _MOST else f'"{shown[: _MOST - 3]}..."'


def text_before(text: str) -> str:
    """Return the end of the text before a token, as a line; "" for an empty text."""
    shown = escaped(text[-_BEFORE:])
    return f"{'...' if len(text) > _BEFORE else ''}{shown}\n" if text else ""


def rank(value: Any) -> str:
    """Return #4; "-" for a masked token."""
    return "-" if value is None else f"#{value}"


def escaped(text: str) -> str:
    """Return the text on one line, with control characters, newlines and tabs as escapes."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")
