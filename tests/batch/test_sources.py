"""The input of a batch: files, folders, URLs, stdin; and the rows that are selected."""

import gzip
import io
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gencli.batch import batch_rows as ids_module
from gencli.batch.batch_records import Record
from gencli.batch.batch_rows import IdCheck, RowOptions, make_rows, row_jobs, survey
from gencli.batch.batch_sources import Selected, Shard, open_input, read_shard
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError

LINES = b'{"prompt": "a"}\n{"prompt": "b"}\n'


def prompts(source):
    return [record.failure or record.columns["prompt"] for record in source]


def zst(data):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.Codec("zstd").compress(data, asbytes=True)


def test_records_are_numbered_over_all_files_and_know_their_lines(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.csv").write_bytes(b"prompt\nc\n")
    (tmp_path / "c.txt").write_bytes(b"d\n")
    found = list(open_input([str(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.txt")]))
    assert [record.index for record in found] == [0, 1, 2, 3]
    assert [record.columns["prompt"] for record in found] == ["a", "b", "c", "d"]
    names = [record.place.rpartition("/")[2] for record in found]
    assert names == ["a.jsonl:1", "a.jsonl:2", "b.csv:2", "c.txt:1"]


def test_packed_files_are_unpacked_on_the_way(tmp_path):
    for suffix, pack in [("gz", gzip.compress), ("zst", zst)]:
        (tmp_path / f"a.jsonl.{suffix}").write_bytes(pack(LINES) + pack(LINES))
        source = open_input([str(tmp_path / f"a.jsonl.{suffix}")])
        assert prompts(source) == prompts(source) == ["a", "b", "a", "b"], suffix


def test_a_folder_is_its_files_of_known_formats_in_order_of_their_names(tmp_path):
    for name in ("b.txt", "a.txt", "c/d.txt", ".hidden.txt", "read.me"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source = open_input([str(tmp_path)])
    assert prompts(source) == ["a.txt", "b.txt", "c/d.txt"]
    assert source.notices == (
        f"Skipped, because the suffix is not that of a known format: {tmp_path / 'read.me'}.",
    )
    assert prompts(open_input([str(tmp_path)], format="document"))[-1] == "read.me"


def test_a_pattern_is_the_files_that_match_and_a_name_with_its_signs_is_itself(tmp_path):
    for name in ("b.txt", "a.txt", "[a].txt"):
        (tmp_path / name).write_text(name)
    assert prompts(open_input([str(tmp_path / "?.txt")])) == ["a.txt", "b.txt"]
    assert prompts(open_input([str(tmp_path / "[a].txt")])) == ["[a].txt"]


def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("prompts.jsonl", "prompts.doc", "array.json"):
        (tmp_path / name).write_bytes(LINES)
    cases = [
        ("promts.jsonl", "There is no file", "Did you mean"),
        ("prompts.doc", "has no suffix of a known format", "`input_format`"),
        ("none*.txt", "No file matches", ""),
        ("empty", "has no file of a known format", "`input_format`"),
        ("nosuch://somewhere/a.jsonl", "There is no driver for nosuch://", "pip install"),
        ("array.json", "is not a JSON array", ""),
    ]
    for name, message, hint in cases:
        with pytest.raises(UsageError, match=message) as caught:
            list(open_input([name if "://" in name else str(tmp_path / name)]))
        assert hint in caught.value.hint, name


def test_a_file_that_is_gone_when_it_is_read_again_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    source = open_input([str(path)])
    assert prompts(source) == ["a", "b"]
    path.unlink()
    with pytest.raises(UsageError, match=r"a\.jsonl cannot be read: No such file"):
        prompts(source)


def test_stdin_tells_its_format_by_its_first_character_and_is_read_twice(monkeypatch):
    for data, found in [(LINES, ["a", "b"]), (b'[{"prompt": "a"}]', ["a"]), (b"a b\nc\n", ["a b", "c"])]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        source = open_input(["-"])
        assert prompts(source) == prompts(source) == found, data
        copy = source.paths[0]
        assert copy.exists(), data
        del source
        assert not copy.exists(), data


def test_a_pipe_is_read_twice_too(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    thread = threading.Thread(target=pipe.write_bytes, args=(LINES,))
    thread.start()
    source = open_input([str(pipe)])
    thread.join()
    assert prompts(source) == prompts(source) == ["a", "b"]
    assert [record.place for record in source] == [f"{pipe}:1", f"{pipe}:2"]


def test_stdin_is_refused_twice_and_packed(monkeypatch):
    with pytest.raises(UsageError, match="given twice"):
        open_input(["-", "-"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(LINES))))
    with pytest.raises(UsageError, match="compressed"):
        open_input(["-"])


def test_a_delimiter_of_ones_own(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"prompt;n\na,b;2\n")
    assert prompts(open_input([str(tmp_path / "a.csv")], delimiter=";")) == ["a,b"]
    with pytest.raises(UsageError, match="one character"):
        open_input(["a.csv"], delimiter="||")


def test_what_is_no_parquet_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(LINES)
    with pytest.raises(UsageError, match="is not a readable Parquet file"):
        list(open_input([str(tmp_path / "a.parquet")]))


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("gencli.batch.input_formats.find_spec", lambda name: None)
    for name in ("a.parquet", "a.jsonl.zst"):
        (tmp_path / name).write_bytes(LINES)
        with pytest.raises(UsageError, match="needs pyarrow") as caught:
            list(open_input([str(tmp_path / name)]))
        assert caught.value.hint == "Install it with: pip install 'gencli[batch]'"


def test_any_file_system_that_fsspec_knows_is_read():
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe(
        {"/batch/b.jsonl": LINES, "/batch/a.txt": b"first\n", "/batch/c.jsonl.gz": gzip.compress(LINES)}
    )
    assert prompts(open_input(["memory://batch/b.jsonl"])) == ["a", "b"]
    assert prompts(open_input(["memory://batch"])) == ["first", "a", "b", "a", "b"]
    assert prompts(open_input(["memory://batch/*.jsonl"])) == ["a", "b"]
    with pytest.raises(UsageError, match="memory://batch/none.jsonl cannot be read"):
        prompts(open_input(["memory://batch/none.jsonl"]))
    memory.rm("/batch", recursive=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/a.jsonl"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(LINES) + (10 if "short" in self.path else 0)))
        self.end_headers()
        self.wfile.write(LINES)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_http_is_read_and_a_body_that_ends_early_is_an_error(server):
    source = open_input([f"{server}/a.jsonl?key=1"])
    assert prompts(source) == prompts(source) == ["a", "b"]
    with pytest.raises(UsageError, match=r"cannot be read further: 10 bytes are missing"):
        prompts(open_input([f"{server}/a.jsonl?short"]))
    with pytest.raises(UsageError, match=r"b\.jsonl cannot be read: Not Found"):
        prompts(open_input([f"{server}/b.jsonl"]))


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
