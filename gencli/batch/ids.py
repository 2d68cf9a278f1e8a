"""Detection of duplicate ids in a batch, with eight bytes of memory per row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from gencli.errors import UsageError

__all__ = ["IdCheck", "id_hash"]


class IdCheck:
    """Stores 64-bit hashes of ids. Ids with equal hashes are compared in a second pass."""

    def __init__(self) -> None:
        self._hashes = array("Q")

    def add(self, name: str) -> None:
        """Store the hash of an id."""
        self._hashes.append(id_hash(name))

    def suspects(self) -> frozenset[int]:
        """Return the hashes that occur more than once: of equal ids, and rarely of different ones."""
        if not self._hashes:
            return frozenset()
        found = np.frombuffer(self._hashes, dtype=np.uint64)
        found.sort()  # in place: a copy would double the memory
        return frozenset(found[1:][found[1:] == found[:-1]].tolist())

    def refuse_twice(self, again: Iterable[tuple[str, str]]) -> None:
        """Raise UsageError if an id was added twice.

        `again` yields all ids with their positions; it is read only if two hashes are equal.
        """
        suspects = self.suspects()
        if not suspects:
            return
        places: dict[str, str] = {}
        for name, place in again:
            if id_hash(name) in suspects:
                if name in places:
                    raise UsageError(
                        f"The id {name!r} occurs twice, at {places[name]} and at {place}.",
                        hint="Change one of them, or name another column with `id_column`; '' takes the "
                        "index of the row.",
                    )
                places[name] = place


def id_hash(name: str) -> int:
    """Return a 64-bit hash of an id, the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
