"""Tables as text: columns as wide as their widest cell, two spaces apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows as lines, with columns as wide as their widest cell and two spaces between them."""
    lines = [tuple(row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    shown = ("  ".join(map(_filled, line, widths)).rstrip() for line in lines)
    return "".join(f"{line}\n" for line in shown)


def _filled(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """Return the number of terminal cells of a text: two for a wide character, such as Chinese."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
