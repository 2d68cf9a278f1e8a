"""Which slot each beam of the next step has."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["arrange"]


def arrange(parents: Sequence[int], slots: Sequence[int]) -> list[int]:
    """A slot for each child, given the slots of their parents; `slots` are those that the search has.

    The first child of a parent stays in its parent's slot, so that nothing is copied where a beam goes on
    alone; the others are given slots whose beams have no child.
    """
    free = iter([slot for slot in slots if slot not in parents])
    taken: set[int] = set()
    placed = []
    for parent in parents:
        slot = next(free) if parent in taken else parent
        taken.add(slot)
        placed.append(slot)
    return placed
