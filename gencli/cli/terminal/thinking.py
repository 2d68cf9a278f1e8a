"""What a model writes before its result, on stderr: as it is made where somebody looks, else at the end."""

from __future__ import annotations

from gencli.cli.terminal.render import prompt, say
from gencli.cli.terminal.stderr import Stderr
from gencli.core.events import Event, Reading, Token
from gencli.results.results import Results
from gencli.results.summary import thinking
from gencli.structured.validate.thinking import ThinkingSplitter

__all__ = ["LiveThinking", "ThinkingSummary"]


class LiveThinking:
    """Shows the text of one sample up to the marker, which is drawn once."""

    def __init__(self, marker: str) -> None:
        self._splitter, self._is_open = ThinkingSplitter(marker), False

    def add(self, event: Event) -> None:
        """Write what is thinking for sure; a new line where it ends."""
        if isinstance(event, Reading):
            return
        is_token = isinstance(event, Token)
        pieces = self._splitter.feed(event.text) if is_token else self._splitter.finish()
        if text := pieces.thinking if self._is_open else pieces.thinking.lstrip():
            prompt(text if self._is_open else f"[thinking] {text}")
            self._is_open = True
        if self._is_open and (self._splitter.is_over or not is_token):
            prompt("\n")
            self._is_open = False

    def close(self) -> None:
        """All of it is written by then."""


class ThinkingSummary:
    """Says at the end what stood before each result."""

    def __init__(self, results: Results, voice: Stderr) -> None:
        self._results, self._voice = results, voice

    def add(self, event: Event) -> None:
        """Nothing to show before the end."""

    def close(self) -> None:
        """Write a paragraph for each sample."""
        for text in thinking(self._results):
            if not self._voice.is_quiet:
                say(text)  # text of the model, in which nothing becomes a flag
