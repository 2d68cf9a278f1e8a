"""The input of a batch, and the rows that are selected."""

import gzip
import json
import tracemalloc
from itertools import chain, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.batch_records import Failure
from gencli.batch.batch_rows import IdCheck
from gencli.batch.batch_sources import Shard, open_input
from tests.batch.test_sources import indexes, prompts, zst


def test_a_packed_file_that_is_cut_off_ends_in_a_failure(tmp_path):
    for (suffix, pack), keep in product([("gz", gzip.compress), ("zst", zst)], [0.5, 0.0]):
        data = pack(b"".join(b'{"prompt": "%d"}\n' % (i * i * 7919) for i in range(20000)))
        (tmp_path / f"a.jsonl.{suffix}").write_bytes(data[: int(len(data) * keep)] if keep else b"not packed")
        (tmp_path / "b.txt").write_bytes(b"still read\n")
        *_, last, after = prompts(open_input([str(tmp_path / f"a.jsonl.{suffix}"), str(tmp_path / "b.txt")]))
        assert isinstance(last, Failure), (keep, suffix)
        assert "is damaged after line" in last.message, (keep, suffix)
        assert after == "still read", (keep, suffix)


def test_parquet_is_read_as_json_has_its_values(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import datetime
    import decimal

    row = {
        "prompt": "a", "n": 2, "at": datetime.date(2026, 1, 2), "price": decimal.Decimal("1.50"),
        "raw": b"\xff", "nan": float("nan"), "list": [{"role": "user", "content": "x"}], "none": None,
    }  # fmt: skip
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist([row] * 2500), tmp_path / "a.parquet", row_group_size=700)
    packed = tmp_path / "b.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    for name in ("a.parquet", "b.parquet.gz"):
        found = list(open_input([str(tmp_path / name)]))
        assert len(found) == 2500
        assert found[-1].place.endswith(":2500")
        changed = {"at": "2026-01-02", "price": "1.50", "raw": "/w==", "nan": None}
        assert found[-1].columns == {**row, **changed}
        json.dumps(found[-1].columns, allow_nan=False)


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
