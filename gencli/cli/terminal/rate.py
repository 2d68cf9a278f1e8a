"""How far a run is, how fast it goes and how long it will take, counted from its events."""

from __future__ import annotations

from dataclasses import dataclass

from gencli.core.events import Event, Finish, Reading, Token
from gencli.results.prompt_progress import PromptProgress

__all__ = ["Meter", "ProgressRate"]


@dataclass(frozen=True, slots=True)
class ProgressRate:
    """Samples that have ended, of how many; tokens a second and seconds left, where they can be told.

    `reading` says how far prompts are that are being read.
    """

    done: int
    total: int
    speed: float | None
    left: float | None
    reading: str = ""


class Meter:
    """Counts the tokens of every sample. `max_tokens` is what a sample may have."""

    def __init__(self, total: int, max_tokens: int) -> None:
        self._total, self._max_tokens = total, max_tokens
        self._prompts = PromptProgress()
        self._open: dict[tuple[str, int], int] = {}
        self._ended: list[int] = []
        self._failed: list[int] = []  # their lengths say nothing of the others
        self._first: tuple[float, int] | None = None  # time of the first event, tokens by then

    def add(self, event: Event, now: float) -> None:
        """Take note of an event at a time in seconds."""
        self._prompts.add(event)
        if isinstance(event, Reading):
            return
        name = event.request, event.sample
        if isinstance(event, Token):
            self._open[name] = self._open.get(name, 0) + len(event.ids)
        else:
            tokens = self._open.pop(name, 0)
            if isinstance(event, Finish):
                self._ended.append(event.completion_tokens)
            else:
                self._failed.append(tokens)
        if self._first is None:
            self._first = now, self._tokens

    def pace(self, now: float) -> ProgressRate:
        """The pace at a time. A sample that has not ended is taken to become as long as those that have.

        Before the first has ended it is taken to become as long as it may.
        """
        done = len(self._ended) + len(self._failed)
        start, before = self._first or (now, 0)
        speed = (self._tokens - before) / (now - start) if now > start and self._tokens > before else None
        length = sum(self._ended) / len(self._ended) if self._ended else self._max_tokens
        missing = length * (self._total - done) - sum(min(length, got) for got in self._open.values())
        left = missing / speed if speed else None
        return ProgressRate(done, self._total, speed, left, self._prompts.text)

    @property
    def _tokens(self) -> int:
        return sum(self._ended) + sum(self._open.values()) + sum(self._failed)
