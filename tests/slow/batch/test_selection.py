"""Samples, limits and shards, and ids that stand twice."""

import tracemalloc
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.batch_rows import IdCheck
from gencli.batch.batch_sources import Shard
from tests.batch.test_selection import indexes


def test_ids_take_eight_bytes_each():
    check = IdCheck()
    tracemalloc.start()
    for index in range(100_000):
        check.add(str(index))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 1_000_000
    assert check.suspects() == frozenset()


SIZES = st.none() | st.integers(0, 60)


@given(sample=SIZES, limit=SIZES, of=st.integers(1, 5), seed=st.integers(0, 9))
def test_shards_together_take_what_one_run_takes(sample, limit, of, seed):
    how = {"sample": sample, "limit": limit, "seed": seed}
    shards = (indexes(shard=Shard(part, of), **how) for part in range(of))
    assert sorted(chain.from_iterable(shards)) == indexes(**how)
