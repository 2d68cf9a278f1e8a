"""Wraps streamed text at words; a terminal itself breaks words at its last column."""

from __future__ import annotations

import re

__all__ = ["WordWrap", "cell_width"]

_TAB = 8
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60"  # Chinese and the like
_PARTS = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")


class WordWrap:
    """Turns the parts of a text into what a terminal is sent.

    The newest word is written at once. If a later part makes it too long for the line, it is erased there and
    written again on the next line. A word longer than a line is left to the terminal.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin an empty line."""
        self._column = 0  # cells of the line that are used
        self._end_word()

    def feed(self, text: str, width: int, codes: tuple[str, str] = ("", "")) -> str:
        """Return what to send for the next part, on lines of `width` cells.

        `codes`: control codes before and after its visible characters.
        """
        sent, (before, after) = list[str](), codes
        for part in _PARTS.findall(text):
            if part == "\n":
                sent.append(part)
                self.restart()
            elif part.isspace():
                self._end_word()
                sent.append(self._space(part, width))
            elif re.match(f"[{_WIDE}]", part):  # breaks anywhere
                self._end_word()
                sent.append(self._added(f"{before}{part}{after}", 2, width))
                self._end_word()
            else:
                sent.append(self._added(f"{before}{part}{after}", cell_width(part), width))
        return "".join(sent)

    def _end_word(self) -> None:
        self._word, self._cells = "", 0  # the unfinished word with its control codes, and its cells

    def _space(self, part: str, width: int) -> str:
        """Return white space as far as the line has room for it."""
        sent = ""
        for char in part:
            cells = _TAB - self._column % _TAB if char == "\t" else cell_width(char)
            if self._column + cells > width:
                break
            self._column += cells
            sent += char
        return sent

    def _added(self, piece: str, cells: int, width: int) -> str:
        if self._column + cells > width and self._column > self._cells and self._cells + cells <= width:
            # From the line's start, because behind the last column a cursor stands on it.
            back = f"\r\x1b[{self._column - self._cells}C\x1b[K" if self._cells else ""
            sent, self._column = f"{back}\n{self._word}{piece}", self._cells
        else:
            sent = piece
        self._column += cells
        self._word, self._cells = self._word + piece, self._cells + cells
        if self._column > width:  # longer than a line
            self._column = (self._column - 1) % width + 1
            self._word, self._cells = "", self._column
        return sent


def cell_width(text: str) -> int:
    """Return the number of terminal cells of a text: two for a wide character, such as Chinese."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
