"""Shows reasoning, the text before the marker, on stderr: live on a terminal, else at the end."""

from __future__ import annotations

from gencli.cli.terminal.render import say, say_part
from gencli.cli.terminal.stderr import Stderr
from gencli.core.events import Event, PromptScores, Reading, Token
from gencli.results.run_record import thinking
from gencli.results.run_results import Results
from gencli.structured.output_spec import ThinkingSplitter

__all__ = ["LiveThinking", "ThinkingSummary"]


class LiveThinking:
    """Streams the reasoning of a single sample to stderr, up to the marker."""

    def __init__(self, marker: str) -> None:
        self._splitter, self._is_open = ThinkingSplitter(marker), False

    def add(self, event: Event) -> None:
        """Write the text that is certainly reasoning, and a line end after the last part."""
        if isinstance(event, Reading | PromptScores):
            return
        is_token = isinstance(event, Token)
        pieces = self._splitter.feed(event.text) if is_token else self._splitter.finish()
        if text := pieces.thinking if self._is_open else pieces.thinking.lstrip():
            say_part(text if self._is_open else f"[thinking] {text}")
            self._is_open = True
        if self._is_open and (self._splitter.is_over or not is_token):
            say_part("\n")
            self._is_open = False

    def close(self) -> None:
        """Do nothing; everything has been written."""


class ThinkingSummary:
    """Writes the reasoning of each sample to stderr at the end of the run."""

    def __init__(self, results: Results, voice: Stderr) -> None:
        self._results, self._voice = results, voice

    def add(self, event: Event) -> None:
        """Do nothing before the end."""

    def close(self) -> None:
        """Write a paragraph for each sample."""
        for text in thinking(self._results):
            if not self._voice.is_quiet:
                say(text)  # text of the model, in which no key becomes a flag
