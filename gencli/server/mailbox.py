"""The events of one call between the engine thread and the reader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gencli.core.events import Error, Event, Finish, Reading, Token, joined

__all__ = ["Mailbox", "merge"]


class Mailbox:
    """Buffers the events that the reader has not taken; belongs to the event loop.

    The buffer is bounded by the output of the call: a slow reader gets the tokens of several steps as one
    event. `num_open`: number of samples that have not ended.
    """

    def __init__(self, num_samples: int) -> None:
        self.num_open = num_samples
        self._events: list[Event] = []
        self._error: Exception | None = None
        self._filled = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether every sample has ended and the reader has taken all events."""
        return not self.num_open and not self._events and self._error is None

    def put(self, event: Event) -> None:
        """Add an event."""
        if not self._events:
            self._filled.set()
        self._events.append(event)
        self.num_open -= isinstance(event, Finish | Error)

    def fail(self, error: Exception) -> None:
        """Raise this error in the reader after the events so far."""
        self._error = self._error or error
        self._filled.set()

    async def take(self) -> list[Event]:
        """Wait for events and return them, merged. Raises the error of `fail`."""
        await self._filled.wait()
        if not self._events and self._error is not None:
            raise self._error
        events, self._events = merge(self._events), []
        if self._error is None:
            self._filled.clear()
        return events


def merge(events: Iterable[Event]) -> list[Event]:
    """Return the events with the tokens of each sample merged, and only the last Reading of each prompt.

    Events of one sample keep their order.
    """
    tokens: dict[tuple[str, int], list[Token]] = {}
    readings: dict[str, Reading] = {}
    merged: list[Event | tuple[str, int]] = []
    for event in events:
        key = event.request, event.sample
        if isinstance(event, Reading):
            readings[event.request] = event
        elif isinstance(event, Token):
            if key not in tokens:
                merged.append(key)
            tokens.setdefault(key, []).append(event)
        else:
            merged.append(event)
    return [
        *readings.values(),
        *(joined(tokens[each]) if isinstance(each, tuple) else each for each in merged),
    ]
