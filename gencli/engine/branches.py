"""Branches of a group: copies of its sequences with one token more, and the slots that they run in."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gencli.core.events import TokenLogprobs
from gencli.engine.feeds import SampledSequences
from gencli.engine.group import Group
from gencli.engine.reports import Taken
from gencli.engine.scheduler import Scheduler
from gencli.engine.sequence import Sequence as Branch
from processors.pipeline import Pipeline

__all__ = ["Branches", "Child", "Inspect", "assign_slots", "note", "rows_of"]

G = TypeVar("G", bound=Group)

# Log-probabilities of tokens [N] chosen at rows [N] of the step.
Inspect = Callable[[Sequence[int], Sequence[int]], list[TokenLogprobs]]


@dataclass(frozen=True, slots=True)
class Child:
    """A sequence extended by one token, and the slot of its parent."""

    parent: int
    branch: Branch
    taken: Taken


class Branches:
    """Extends the sequences of groups. `fork` copies a slot; `release` empties lanes and frees slots."""

    def __init__(
        self,
        scheduler: Scheduler,
        pipeline: Pipeline,
        *,
        fork: Callable[[int, int], None],
        release: Callable[[Collection[int], Collection[int]], None],
    ) -> None:
        self._scheduler, self._pipeline, self._fork, self._release = scheduler, pipeline, fork, release

    def extend(self, parent: Branch, token: int) -> Child:
        """Return a copy of the sequence extended by a token, and ended if the token ends it.

        Raises GencliError for a stop pattern that takes too long.
        """
        branch = parent.fork()
        status = self._pipeline.preview(parent.slot, [token])
        taken, error = branch.take([token], status, now=time.monotonic())
        if error is not None:
            raise error
        return Child(parent.slot, branch, taken)

    def assign(self, group: Group, former: Sequence[int], children: Sequence[Child]) -> None:
        """Run the children in place of the members in slots `former`: copy slots for them, empty the rest."""
        parents = [child.parent for child in children]
        left = set(former) - set(parents)
        self._release(left, left)
        for child, slot in zip(children, assign_slots(parents, group.slots), strict=True):
            if slot != child.parent:
                self._fork(child.parent, slot)
            child.branch.move(slot)
        self._scheduler.replace(group)


def assign_slots(parents: Sequence[int], slots: Sequence[int]) -> list[int]:
    """Return a slot for each child. `parents`: slot of each child's parent. `slots`: all slots of the group.

    The first child of a parent keeps the parent's slot, so a sequence with one child is not copied. Other
    children get slots of sequences without children.
    """
    free = iter([slot for slot in slots if slot not in parents])
    used: set[int] = set()
    assigned = []
    for parent in parents:
        slot = next(free) if parent in used else parent
        used.add(slot)
        assigned.append(slot)
    return assigned


def rows_of(
    kind: type[G], sampled: SampledSequences, first_rows: Sequence[int]
) -> tuple[tuple[G, ...], tuple[tuple[int, ...], ...]]:
    """Return the groups of this kind that are sampled in the step, and the logit rows of their members."""
    pairs = zip(sampled, first_rows, strict=True)
    rows = {one.slot: row for (one, _), row in pairs if isinstance(one.group, kind)}
    groups = dict.fromkeys(one.group for one, _ in sampled if isinstance(one.group, kind))
    return tuple(groups), tuple(tuple(rows[one.slot] for one in group.members) for group in groups)


def note(children: Sequence[Child], row_of: dict[int, int], inspect: Inspect) -> None:
    """Add to each child the log-probability of its last token. `row_of`: row of each slot."""
    found = inspect([row_of[one.parent] for one in children], [one.taken.ids[0] for one in children])
    for child, entry in zip(children, found, strict=True):
        child.branch.note([entry])
