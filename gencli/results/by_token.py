"""Values collected with the tokens of a request, by sample; of a retried sample those of the last attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gencli.core.events import Error, Event, Finish, Token

__all__ = ["ByToken", "of_last_attempt"]

T = TypeVar("T")


def of_last_attempt(held: Sequence[T], end: Finish | Error) -> Sequence[T]:
    """Return what belongs to the tokens of the attempt that has ended; earlier ones stand before it."""
    return held[max(0, len(held) - end.completion_tokens) :]


@dataclass(slots=True)
class ByToken(Generic[T]):
    """Collects from the events of one request what `find` finds in a Token event."""

    find: Callable[[Token], Sequence[T]]
    _samples: dict[int, list[T]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add what the event has. At the end of a sample that of earlier attempts is dropped."""
        if isinstance(event, Token):
            if found := self.find(event):
                self._samples.setdefault(event.sample, []).extend(found)
        elif isinstance(event, Finish | Error) and event.sample in self._samples:
            self._samples[event.sample] = [*of_last_attempt(self._samples[event.sample], event)]

    def of(self, sample: int) -> tuple[T, ...]:
        """Return the values collected with the tokens of a sample; () if there are none."""
        return tuple(self._samples.get(sample, ()))
