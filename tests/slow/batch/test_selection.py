"""Samples, limits and shards, and ids that stand twice."""

import tracemalloc

from gencli.batch.ids import IdCheck


def test_ids_take_eight_bytes_each():
    check = IdCheck()
    tracemalloc.start()
    for index in range(100_000):
        check.add(str(index))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
    assert check.suspects() == frozenset()
