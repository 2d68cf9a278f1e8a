"""Tables and sizes as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["size", "table"]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces between them."""
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "".join(f"{line}\n" for line in shown)


def size(count: int | None) -> str:
    """Bytes in the unit that suits them."""
    if count is None:
        return "?"
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
