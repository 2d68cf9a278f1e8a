"""Tables and sizes as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["size", "table"]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as lines, with columns as wide as their widest cell and two spaces between them."""
    lines = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "".join(f"{line}\n" for line in shown)


def size(count: int | None) -> str:
    """Return a number of bytes in its unit, as in 1.5 GiB; "?" for None."""
    if count is None:
        return "?"
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
