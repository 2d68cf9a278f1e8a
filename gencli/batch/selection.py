"""Selection of records: a random sample, then the first ones, then the shard of one machine.

With this order the shards of all machines together equal the selection without shards.
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
from processors.conversion import whole

__all__ = ["Selected", "Shard", "read_shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """The records with index modulo `of` equal to `part`."""

    part: int = 0
    of: int = 1


def read_shard(text: str) -> Shard:
    """Return the shard written as i/n, such as 0/4; i counts from 0. Raises UsageError."""
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
    """The selected records in the order of the input; each iteration reads the input again.

    A sample consists of the n records with the smallest hashes of seed and index, so it depends only on the
    seed and the number of records. Sampling reads the input twice and stores n numbers.
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
    """Return the ascending indices of a sample of `size` out of `total` records."""
    heap: list[tuple[int, int]] = []  # negated hashes, so that the largest of the smallest hashes is on top
    for index in range(total):
        digest = blake2b(b"%d %d" % (seed, index), digest_size=8).digest()
        entry = (-int.from_bytes(digest, "little"), index)
        if len(heap) < size:
            heappush(heap, entry)
        elif heap and entry > heap[0]:
            heapreplace(heap, entry)
    return array("Q", sorted(index for _, index in heap))
