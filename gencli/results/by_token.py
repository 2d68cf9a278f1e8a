"""Values collected with the tokens of a request, by sample; for a retried sample of the last attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gencli.core.events import Error, Event, Finish, Token

__all__ = ["ByToken", "of_last_attempt", "token_ids"]

T = TypeVar("T")


def of_last_attempt(held: Sequence[T], end: Finish | Error) -> Sequence[T]:
    """Return the last `completion_tokens` values of `held`, which belong to the attempt that has ended."""
    return held[max(0, len(held) - end.completion_tokens) :]


@dataclass(slots=True)
class ByToken(Generic[T]):
    """Collects values from the Token events of one request; `find` extracts them from an event."""

    find: Callable[[Token], Sequence[T]]
    _samples: dict[int, list[T]] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Add the event's values. At the end of a sample, values of earlier attempts are dropped."""
        if isinstance(event, Token):
            if found := self.find(event):
                self._samples.setdefault(event.sample, []).extend(found)
        elif isinstance(event, Finish | Error) and event.sample in self._samples:
            self._samples[event.sample] = [*of_last_attempt(self._samples[event.sample], event)]

    def of(self, sample: int) -> tuple[T, ...]:
        """Return the values collected with the tokens of a sample; () if there are none."""
        return tuple(self._samples.get(sample, ()))


def token_ids() -> ByToken[int]:
    """Return a collector of the token ids of one request's outputs."""
    return ByToken(lambda event: event.ids)
