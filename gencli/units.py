"""Seconds and bytes as short texts for a person."""

from __future__ import annotations

__all__ = ["clock", "size"]


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds, or with hours: 2:03, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: int | None) -> str:
    """Return a number of bytes in a binary unit, such as "1.5 GiB"; "?" for None."""
    if count is None:
        return "?"
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
