"""Tables as text: columns two spaces apart, which fit a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from gencli.cli.terminal.render import result_width
from gencli.cli.terminal.wrap import cell_width

__all__ = ["table"]

_GAP = 2
_MAX_WORD = 16  # cells of a word that is not broken

_Lines = Sequence[tuple[str, ...]]


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """Return rows as lines, with columns as wide as their widest cell.

    `width`: the most cells of a line, by default those of the terminal that shows the result; 0: any number.
    In a narrower table cells are wrapped at words, and columns without room follow below, beside the first.
    """
    lines = [tuple(row) for row in rows]
    most = (result_width() if width is None else width) or 1 << 30
    return "\n".join(_laid_out(part, most) for part in _parts(lines, most))


def _parts(lines: _Lines, most: int) -> list[_Lines]:
    """Return the tables with all columns in which every column has room for its words."""
    least = [_least(column) for column in zip(*lines, strict=True)]
    parts, room = [[0]], most - sum(least[:1])
    for at in range(1, len(least)):
        if room < _GAP + least[at] and len(parts[-1]) > 1:
            parts.append([0])
            room = most - least[0]
        parts[-1].append(at)
        room -= _GAP + least[at]
    return (
        [lines] if len(parts) == 1 else [[tuple(line[at] for at in part) for line in lines] for part in parts]
    )


def _laid_out(lines: _Lines, most: int) -> str:
    columns = list(zip(*lines, strict=True))
    widths, least = [max(map(cell_width, column)) for column in columns], [*map(_least, columns)]
    over = sum(widths) + _GAP * (len(widths) - 1) - most
    for _ in range(max(0, over)):
        spare = [at for at, width in enumerate(widths) if width > least[at]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    shown = []
    for line in lines:
        cells = [_wrapped(text, width) for text, width in zip(line, widths, strict=True)]
        shown += [
            "  ".join(map(_filled, parts, widths)).rstrip() for parts in zip_longest(*cells, fillvalue="")
        ]
    return "".join(f"{line}\n" for line in shown)


def _least(column: Sequence[str]) -> int:
    """Return the cells of a column's longest word."""
    words = (min(_MAX_WORD, cell_width(word)) for text in column for word in text.split())
    return max(words, default=1)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a cell."""
    if cell_width(text) <= width:
        return [text]
    from rich.console import Console  # only narrow terminals need it
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(width=width), width)]


def _filled(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))
