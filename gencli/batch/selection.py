"""Which records of an input are taken: a sample, the first ones, one machine's share.

In this order, so that the shares of several machines together are what one machine would take.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappush, heapreplace
from itertools import islice

from gencli.batch.records import Record
from gencli.errors import UsageError
from processors.params import whole

__all__ = ["Selected", "Shard", "read_shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """The records whose index leaves `part` when divided by `of`."""

    part: int = 0
    of: int = 1


def read_shard(text: str) -> Shard:
    """The shard written i/n, as in 0/4; i counts from 0. Raises UsageError."""
    part, slash, of = text.partition("/")
    at, count = whole(part), whole(of)
    if not slash or at is None or count is None or at >= count:
        raise UsageError(
            f"`shard` is {text[:60]!r}, but has to be i/n with i from 0 to n - 1.",
            hint="Four machines take 0/4, 1/4, 2/4 and 3/4.",
        )
    return Shard(at, count)


@dataclass(frozen=True, slots=True)
class Selected:
    """The records that are taken, in the input's order; each iteration reads the input anew.

    A sample of n are the records whose hash of seed and index is among the n smallest: the same for the
    same seed and number of records, whatever they hold. It reads the input once more, and holds n numbers.
    """

    records: Iterable[Record]
    limit: int | None = None
    sample: int | None = None
    shard: Shard = Shard()
    seed: int = 0

    def __iter__(self) -> Iterator[Record]:
        records = iter(self.records) if self.sample is None else self._sampled(self.sample)
        for record in islice(records, self.limit):
            if record.index % self.shard.of == self.shard.part:
                yield record

    def _sampled(self, size: int) -> Iterator[Record]:
        chosen = _chosen(sum(1 for _ in self.records), size, self.seed)
        for record in self.records:
            at = bisect_left(chosen, record.index)
            if at < len(chosen) and chosen[at] == record.index:
                yield record


def _chosen(total: int, size: int, seed: int) -> array[int]:
    """The indexes of a sample, ascending."""
    heap: list[tuple[int, int]] = []  # of the smallest hashes, negated: the largest of them is on top
    for index in range(total):
        digest = blake2b(b"%d %d" % (seed, index), digest_size=8).digest()
        entry = (-int.from_bytes(digest, "little"), index)
        if len(heap) < size:
            heappush(heap, entry)
        elif heap and entry > heap[0]:
            heapreplace(heap, entry)
    return array("Q", sorted(index for _, index in heap))
