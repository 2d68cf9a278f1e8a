"""Sequences of one request that run side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from gencli.core.events import Event
from gencli.engine.sequence import Sequence
from gencli.text.text_stream import TextStream

__all__ = ["Group", "heads"]


class Group(ABC):
    """Sequences of one request that run side by side and end together, such as the beams of a search.

    `members`: the running sequences; a waiting group has one. `width`: slots that the group needs. `slots`:
    its slots while it runs.
    """

    def __init__(self, root: Sequence, width: int) -> None:
        self.request, self.width = root.request, width
        self.members, self.slots = [root], ()
        root.group = self

    members: list[Sequence]
    slots: tuple[int, ...]

    def place(self, slots: tuple[int, ...]) -> None:
        """Assign the slots of the group; the first slot is that of its only member."""
        self.slots = slots

    @property
    def is_behind(self) -> bool:
        """Whether members still recompute their lanes. All of them wait, as they choose tokens together."""
        return len(self.members) > 1 and any(member.lag > 1 for member in self.members)

    @abstractmethod
    def close(self, reason: str, matched: str | None = None) -> None:
        """End all members for a reason outside of their texts."""

    @abstractmethod
    def drain(self, now: float, error: Exception | None = None) -> list[Event]:
        """Return the events of a group that has ended, or that failed with `error`."""

    @abstractmethod
    def restart(self, stream: TextStream) -> None:
        """Reset to one member that holds the prompt, without slots."""


def heads(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Return the first sequence of each group, and the sequences without one."""
    firsts = dict[int, Sequence]()
    for sequence in sequences:
        firsts.setdefault(id(sequence.unit), sequence)
    return [*firsts.values()]
