"""Format seconds."""

from __future__ import annotations

__all__ = ["clock"]


def clock(seconds: float) -> str:
    """Return seconds as minutes and seconds, or with hours: 2:03, 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
