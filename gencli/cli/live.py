"""Several texts on a terminal: a line for each that runs, finished ones in full above."""

from __future__ import annotations

import time
from contextlib import ExitStack

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gencli.cli.results import Results
from gencli.cli.writers import block
from gencli.events import Event, Token

__all__ = ["LiveWriter"]

_SECONDS = 0.1  # between two drawings


class LiveWriter:
    """Shows the newest words of every running text, and each text as a block when it is complete."""

    def __init__(self, results: Results, stack: ExitStack) -> None:
        self._results = results
        self._console = Console(highlight=False, soft_wrap=True)
        live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live = stack.enter_context(live)  # leaves the terminal in order whatever happens
        self._drawn = 0.0

    def add(self, event: Event) -> None:
        """Draw the lines anew, not too often; print a text that is complete."""
        if not isinstance(event, Token):
            text = block(self._results.row(event.request), event.sample)
            self._console.print(Text(text), soft_wrap=True)
        elif time.monotonic() - self._drawn < _SECONDS:
            return
        self._drawn = time.monotonic()
        self._live.update(Group(*self._lines()), refresh=True)

    def close(self) -> None:
        """All is shown by then."""

    def _lines(self) -> list[Text]:
        width, room = self._console.width, max(1, self._console.height - 2)
        lines = []
        for row in self._results.rows:
            for sample, outcome in enumerate(row.outcomes):
                if outcome is None and row.texts[sample]:
                    number = row.id + (f".{sample + 1}" if len(row.texts) > 1 else "")
                    tail = " ".join(row.texts[sample][-2 * width :].split())
                    space = max(1, width - len(number) - 4)
                    lines.append(Text(f"[{number}] {tail[-space:]}", no_wrap=True, overflow="crop"))
        return lines[:room]
