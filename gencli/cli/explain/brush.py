"""Writes text styled by level, by terminal styles or by marks."""

from __future__ import annotations

from gencli.cli.explain.levels import LEVELS, Look, marked
from gencli.cli.terminal.render import Sink

__all__ = ["Brush"]


class Brush:
    """Writes pieces of text in the style of their levels.

    `look`: color; plain (underlined, bold, reversed) with NO_COLOR; marks on a terminal without styles, and
    without a terminal.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink, codes = sink, sink.codes_of
        self._codes = [codes(one.color) for one in LEVELS]
        self.look: Look = "color"
        if not any(before for before, _ in self._codes):
            self.look = "marks"
        elif "" in (before for before, _ in self._codes[1:]):
            self._codes, self.look = [codes(one.plain) for one in LEVELS], "plain"

    def write(self, text: str, number: int) -> None:
        """Write a piece. Surrounding white space gets no marks or underlines."""
        if self.look == "marks":
            self._sink.write(marked(text, number))
            return
        body = text.strip() or text
        lead, _, end = text.partition(body)
        if lead:
            self._sink.write(lead)
        self._sink.write(body, self._codes[number] if body.strip() else ("", ""))
        if end:
            self._sink.write(end)
