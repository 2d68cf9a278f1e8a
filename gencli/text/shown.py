"""Texts in the `repr` of a value: one line, quoted, of bounded length."""

from __future__ import annotations

__all__ = ["shown"]


def shown(text: str, most: int = 60) -> str:
    """Return the text as Python writes it, with controls escaped, cut so that it has `most` characters."""
    quoted = repr(text[: most + 1])
    if len(text) <= most and len(quoted) <= most:
        return quoted
    size = most
    while len(quoted := repr(f"{text[:size]}...")) > most:
        size -= 1
    return quoted
