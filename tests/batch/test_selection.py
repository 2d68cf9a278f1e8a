"""Samples, limits and shards, and ids that stand twice."""

import pytest

from gencli.batch import batch_rows as ids_module
from gencli.batch.batch_records import Record
from gencli.batch.batch_rows import IdCheck, RowOptions, make_rows, row_jobs, survey
from gencli.batch.batch_sources import Selected, Shard, read_shard
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError

RECORDS = [Record(index, f"f:{index + 1}", {"prompt": str(index)}) for index in range(50)]


def indexes(**how):
    return [record.index for record in Selected(RECORDS, **how)]


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_the_order():
    assert indexes(sample=10, seed=1) == sorted(indexes(sample=10, seed=1)) != indexes(sample=10, seed=2)
    assert len(indexes(sample=10)) == 10
    assert set(indexes(sample=10)) < set(indexes(sample=20))
    assert indexes(sample=60) == list(range(50))


def test_every_record_is_as_likely_in_a_sample():
    counts = [0] * 50
    for seed in range(400):
        for index in indexes(sample=10, seed=seed):
            counts[index] += 1
    # Each is drawn 80 times of 400 on average, standard deviation 8.
    assert 45 < min(counts) <= max(counts) < 115


def test_a_shard_is_written_with_a_slash_and_counts_from_0():
    assert read_shard("1/4") == Shard(1, 4)
    assert indexes(shard=Shard(1, 4), limit=9) == [1, 5]
    for text in ("4/4", "1", "a/b", "-1/2", "0/0"):
        with pytest.raises(UsageError, match="has to be i/n"):
            read_shard(text)


def rows_of(names, **flags):
    records = [Record(i, f"f:{i + 1}", {"prompt": "a", "key": name}) for i, name in enumerate(names)]
    jobs = row_jobs(resolve((FLAG, {"seed": 1})))
    return lambda: make_rows(records, RowOptions(id_column="key"), jobs)


def test_an_id_that_stands_twice_is_named_with_both_places():
    with pytest.raises(UsageError, match=r"The id 'b' occurs twice, at f:2 and at f:4\."):
        survey(rows_of(["a", "b", "c", "b"]))


def test_different_ids_of_one_hash_are_no_duplicates(monkeypatch):
    monkeypatch.setattr(ids_module, "id_hash", len)
    check = IdCheck()
    for name in ("a", "b", "cc"):
        check.add(name)
    assert check.suspects() == {1}
    check.refuse_twice([("a", "1"), ("b", "2"), ("cc", "3")])
    with pytest.raises(UsageError, match="The id 'b' occurs twice, at 2 and at 4"):
        check.refuse_twice([("a", "1"), ("b", "2"), ("cc", "3"), ("b", "4")])


def test_a_survey_counts_rows_and_faults_and_finds_the_kinds_of_columns():
    data = [
        {"prompt": "a", "label": 1, "share": 1, "is_good": True, "mixed": 1, "big": 2**63},
        {"prompt": "", "label": None, "share": 0.5, "is_good": False, "mixed": "x", "empty": None},
    ]
    records = [Record(index, "f", columns) for index, columns in enumerate(data)]
    jobs, faults = row_jobs(resolve((FLAG, {"seed": 1}))), []
    found = survey(lambda: make_rows(records, RowOptions(keep_input=True), jobs), faults.append)
    assert (found.num_rows, found.num_faults, [row.record.index for row in faults]) == (2, 1, [1])
    assert found.columns == {
        "prompt": "text", "label": "integer", "share": "number", "is_good": "boolean", "mixed": "text",
        "big": "text", "empty": "text",
    }  # fmt: skip


def test_the_digest_changes_with_what_is_asked():
    def digest(**columns):
        records = [Record(0, "f", {"prompt": "a", "key": "x", **columns})]
        jobs = row_jobs(resolve((FLAG, {"seed": 1})))
        return survey(lambda: make_rows(records, RowOptions(id_column="key"), jobs)).digest

    assert digest() == digest()
    for change in ({"prompt": "b"}, {"n": 2}, {"key": "z"}):
        assert digest() != digest(**change), change
