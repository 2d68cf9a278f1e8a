"""Progress, rate and remaining time of a run, computed from its events."""

from __future__ import annotations

from dataclasses import dataclass

from gencli.core.events import Event, Finish, Reading, Token
from gencli.results.prompt_progress import PromptProgress

__all__ = ["Meter", "ProgressRate"]


@dataclass(frozen=True, slots=True)
class ProgressRate:
    """Samples done and in total, tokens per second, and seconds left; None if not known yet.

    `reading`: text about the progress of prompts in prefill, "" without any.
    """

    done: int
    total: int
    speed: float | None
    left: float | None
    reading: str = ""


class Meter:
    """Counts the tokens of every sample. `max_tokens` is the limit of a sample."""

    def __init__(self, total: int, max_tokens: int) -> None:
        self._total, self._max_tokens = total, max_tokens
        self._prompts = PromptProgress()
        self._open: dict[tuple[str, int], int] = {}
        self._num_ended = self._num_failed = 0
        self._ended_tokens = 0
        self._failed_tokens = 0  # not used to estimate lengths
        self._first: tuple[float, int] | None = None  # time of the first event, and tokens by then

    def add(self, event: Event, now: float) -> None:
        """Count an event at the time `now` in seconds."""
        self._prompts.add(event)
        if isinstance(event, Reading):
            return
        name = event.request, event.sample
        if isinstance(event, Token):
            self._open[name] = self._open.get(name, 0) + len(event.ids)
        else:
            tokens = self._open.pop(name, 0)
            if isinstance(event, Finish):
                self._num_ended += 1 + event.more
                self._ended_tokens += event.completion_tokens
            else:
                self._num_failed += 1
                self._failed_tokens += tokens
        if self._first is None:
            self._first = now, self._tokens

    def pace(self, now: float) -> ProgressRate:
        """Return the rate at the time `now`.

        seconds left = tokens missing / tokens per second. Unfinished samples are expected to reach the mean
        length of the finished ones, or `max_tokens` before any has finished.
        """
        done = self._num_ended + self._num_failed
        start, before = self._first or (now, 0)
        speed = (self._tokens - before) / (now - start) if now > start and self._tokens > before else None
        length = self._ended_tokens / self._num_ended if self._num_ended else self._max_tokens
        missing = length * (self._total - done) - sum(min(length, count) for count in self._open.values())
        left = missing / speed if speed else None
        return ProgressRate(done, self._total, speed, left, self._prompts.text)

    @property
    def _tokens(self) -> int:
        return self._ended_tokens + sum(self._open.values()) + self._failed_tokens
