"""Numbers and texts of records as a terminal shows them."""

from __future__ import annotations

from typing import Any

from gencli.text.escapes import escape_controls

__all__ = ["probability", "quoted", "rank"]

_MOST = 24  # characters of a token


def probability(p: float | None) -> str:
    """Return 1.000, .372, .0004 or 2e-05; - for none."""
    if p is None:
        return "-"
    if p == 0:
        return "0"
    text = f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
    return text.removeprefix("0")


def quoted(text: str) -> str:
    """Return a token in quotes, with control characters and newlines as escapes, shortened if long."""
    shown = escape_controls(text).replace("\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    return f'"{shown}"' if len(shown) <= _MOST else f'"{shown[: _MOST - 3]}..."'


def rank(value: Any) -> str:
    """Return #4, or - for a masked token."""
    return "-" if value is None else f"#{value}"
