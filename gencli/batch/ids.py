"""Ids that stand twice in a batch, found with eight bytes a row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from gencli.errors import UsageError

__all__ = ["IdCheck", "id_hash"]


class IdCheck:
    """Takes note of ids as hashes of 64 bits; hashes that occur twice are looked at again."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, name: str) -> None:
        """Take note of an id."""
        self._hashes.append(id_hash(name))

    def suspects(self) -> frozenset[int]:
        """The hashes that occur more than once: of equal ids, or (seldom) of different ones."""
        if not self._hashes:
            return frozenset()
        found = np.frombuffer(self._hashes, dtype=np.uint64)
        found.sort()  # in place: a copy would take as much once more
        return frozenset(found[1:][found[1:] == found[:-1]].tolist())

    def refuse_twice(self, again: Iterable[tuple[str, str]]) -> None:
        """Raise UsageError if an id was added twice. `again` yields all ids and their places once more,
        and is read only if there is a suspicion."""
        suspects = self.suspects()
        if not suspects:
            return
        places: dict[str, str] = {}
        for name, place in again:
            if id_hash(name) in suspects:
                if name in places:
                    raise UsageError(
                        f"The id {name!r} stands at {places[name]} and at {place}, but names one result.",
                        hint="Change one of them, or name another column with `id_column`.",
                    )
                places[name] = place


def id_hash(name: str) -> int:
    """64 bits of an id: the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
