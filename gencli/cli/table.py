"""Columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Lines whose columns stand below each other; nothing is padded at the end of a line."""
    lines = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)
