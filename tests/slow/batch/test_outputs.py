"""Formats of the output, on generated content, and typed columns."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gencli.batch.batch_records import Outcome
from gencli.batch.batch_sources import open_input
from gencli.batch.output_formats import safe_name
from tests.batch.test_command import FLAGS
from tests.batch.test_outputs import write
from tests.batch.test_rows import result


def test_parquet_has_the_same_columns_typed(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    many = [Outcome(index, str(index), result(input={"label": index})) for index in range(2500)]
    write(tmp_path / "out.parquet", rows=many)
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 2500
    assert table.schema.field("input.label").type == "int64"
    assert table.slice(2499).to_pylist()[0] == {
        "index": 2499, "id": "2499", "sample": 1, "prompt": "p", "text": "t", "finish_reason": "eos",
        "matched": None, "prompt_tokens": 2, "completion_tokens": 3, "seed": "1", "error_type": None,
        "error_message": None, "input.label": 2499, "input.note": None,
    }  # fmt: skip


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_file_names_are_safe_and_tell_ids_apart(ids):
    names = [safe_name(name) for name in ids]
    assert names[0] != names[1]
    for name in names:
        assert Path(name).name == name
        assert name.isascii()
        assert not name.startswith((".", "~"))
        assert len(name) < 200
        assert not set(name) & set('<>:"/\\|?* \0')


@given(texts=st.lists(st.text(), max_size=5))
@settings(max_examples=30)
def test_what_is_written_is_read_back_as_input(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("out")
    rows = [Outcome(index, str(index), result(text=text)) for index, text in enumerate(texts)]
    for name in ("o.jsonl", "o.csv", "o.jsonl.gz"):
        write(path / name, rows=rows)
        assert [record.columns["text"] for record in open_input([str(path / name)])] == texts


SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 99},
        "size": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "null"}]},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2},
    },
    "required": ["id", "size", "kind", "tags"],
}


def run(bench, *flags):
    bench.output = bench.folder / "out.parquet"
    bench.journal = bench.folder / "out.parquet.journal"
    columns = "--columns", "--json-schema", json.dumps(SCHEMA), "--json-whitespace", "0"
    return bench.call(bench.input, "-o", bench.output, *FLAGS, *columns, *flags)


def test_a_resumed_run_writes_the_table_of_a_whole_one(bench):
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [{"prompt": f"Row {number}"} for number in range(6)]
    bench.write([{"prompt": "cut", "max_tokens": 3}, *rows])
    done = run(bench, "--keep-journal")
    assert done.code == 7
    assert "id as output.id" in done.err
    whole = bench.output.read_bytes()
    table = pq.read_table(bench.output)
    types = [str(table.schema.field(name).type) for name in ("output.id", "size", "kind", "tags")]
    assert types == ["int64", "int64", "string", "list<element: string>"]
    first, *others = table.to_pylist()
    assert (first["error_type"], first["kind"], first["tags"]) == ("InvalidOutput", None, None)
    for row in others:
        found = {"id": row["output.id"], **{name: row[name] for name in ("size", "kind", "tags")}}
        assert found == json.loads(row["text"])

    lines = bench.journal.read_bytes().splitlines(keepends=True)
    bench.journal.write_bytes(b"".join(lines[:4]) + lines[4][:20])
    bench.output.unlink()
    assert run(bench, "--resume").code == 7
    assert bench.output.read_bytes() == whole


def test_columns_may_be_added_to_a_run_that_began_without_them(bench):
    pq = pytest.importorskip("pyarrow.parquet")
    bench.write([{"prompt": "Row"}])
    bench.output = bench.folder / "out.parquet"
    flags = *FLAGS, "--json-schema", json.dumps(SCHEMA), "--json-whitespace", "0", "--keep-journal"
    assert bench.call(bench.input, "-o", bench.output, *flags).code == 0
    assert "kind" not in pq.read_table(bench.output).column_names
    assert run(bench, "--keep-journal", "--resume").code == 0
    assert pq.read_table(bench.output)["kind"].to_pylist()[0] in ("a", "b")
