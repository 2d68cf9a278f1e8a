"""`gencli batch --columns`: tables with a typed column for each property of the schema."""

import json

import pytest

from tests.batch.test_structure import FLAGS

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
