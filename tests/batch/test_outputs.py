"""Formats of the output, their files, and typed columns for documents."""

import csv
import gzip
import io
import json
import math
import os
from decimal import Decimal
from pathlib import Path

import pytest

from gencli.batch.batch_options import OWN
from gencli.batch.batch_records import Outcome
from gencli.batch.batch_sources import open_input
from gencli.batch.output_formats import INDEX, JSONL, OUTPUT_FORMATS, OutputTarget, plan_output, safe_name
from gencli.batch.table_columns import COLUMNS, ListOf, StructOf, document_columns, generated, property_types
from gencli.errors import GenerationError, UsageError
from gencli.files import beside
from gencli.structured.output_spec import OutputSpec, Plan
from tests.batch.test_rows import result, several

ERROR = {"type": "UsageError", "message": "The prompt is empty."}
KEPT = {"label": "integer", "note": "text"}


def outcomes():
    chain = [{"bias": {"b": -math.inf}}]
    return [
        Outcome(0, "a", result(input={"label": 7, "note": 'x,\n"y"'}, chain=chain)),
        Outcome(1, "b", several()),
        Outcome(2, "c", {"error": ERROR, "finish_reason": "error", "input": {"note": ["l"]}}, is_error=True),
    ]


def write(path, format_name=None, *, rows=None, kept=KEPT):
    with plan_output(str(path), format_name).open(generated(kept)) as writer:
        for outcome in outcomes() if rows is None else rows:
            writer.write(outcome)


def test_json_lines_have_the_fields_of_a_run_and_the_index(tmp_path):
    write(tmp_path / "out.jsonl")
    first, second, third = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert {**result(), "index": 0}.items() <= {**first, "id": "r1"}.items()
    assert first["chain"] == [{"bias": {"b": "-inf"}}]
    assert (second["texts"], second["id"]) == (["a", "b"], "b")
    assert third == {
        "index": 2, "id": "c", "error": ERROR, "finish_reason": "error", "input": {"note": ["l"]},
    }  # fmt: skip


def test_tables_have_a_line_for_each_sample(tmp_path):
    for name, delimiter in [("out.csv", ","), ("out.tsv", "\t")]:
        write(tmp_path / name)
        with (tmp_path / name).open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [(row["id"], row["sample"], row["text"]) for row in rows] == [
            ("a", "1", "t"), ("b", "1", "a"), ("b", "2", "b"), ("c", "1", ""),
        ], name  # fmt: skip
        assert (rows[0]["input.label"], rows[0]["input.note"], rows[0]["seed"]) == ("7", 'x,\n"y"', "1"), name
        assert rows[2]["error_type"] == "EmptySupport", name
        assert rows[3]["error_message"] == "The prompt is empty.", name
        assert (rows[3]["input.label"], rows[3]["input.note"], rows[3]["prompt"]) == ("", '["l"]', ""), name


def test_openai_lines(tmp_path):
    write(tmp_path / "out.jsonl", "openai")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == ["a", "b", "c"]
    assert [line["error"] and line["error"]["code"] for line in lines] == [None, None, "UsageError"]


def test_a_folder_has_a_file_for_each_text_and_an_index(tmp_path):
    rows = [*outcomes(), Outcome(3, "../x/y", result(text="up")), Outcome(4, "b.1", result(text="other"))]
    write(f"{tmp_path}/out/", rows=rows)
    index = [json.loads(line) for line in (tmp_path / "out" / INDEX).read_text().splitlines()]
    assert [line["files"] for line in index] == [
        ["a.txt"], ["b.1.txt", None], [None], ["%2E.%2Fx%2Fy.txt"], ["b.1~2.txt"],
    ]  # fmt: skip
    assert index[2]["error"] == [ERROR]
    assert (tmp_path / "out" / "%2E.%2Fx%2Fy.txt").read_text() == "up"
    assert (tmp_path / "out" / "b.1~2.txt").read_text() == "other"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_names_that_file_systems_do_not_like(tmp_path):
    for name in ["con", "NUL.txt", "com1", ".hidden", "..", "a" * 500, "a" * 499 + "b", "日本"]:
        (tmp_path / f"{safe_name(name)}.txt").write_text("")
        assert safe_name(name) != name, name


def test_packed_output_is_the_same_bytes_each_time(tmp_path):
    pytest.importorskip("pyarrow")
    for name in ["o.jsonl.gz", "o.csv.zst"]:
        write(tmp_path / name)
        first = (tmp_path / name).read_bytes()
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == first, name
        if name.endswith("gz"):
            assert gzip.decompress(first).count(b"\n") == 3, name
        assert len(list(open_input([str(tmp_path / name)]))) == (3 if "jsonl" in name else 4), name


def test_nothing_has_its_name_before_it_is_complete(tmp_path):
    pytest.importorskip("pyarrow")

    def fail(output):
        with output.open(generated(KEPT)) as writer:
            writer.write(outcomes()[0])
            assert not output.path.exists()
            raise KeyError

    for name in ["o.jsonl", "o.csv", "o.parquet", "o/", "o.jsonl.gz", "o.jsonl.zst"]:
        output = plan_output(f"{tmp_path}/{name}")
        with pytest.raises(KeyError):
            fail(output)
        assert list(tmp_path.iterdir()) == [], name


def test_an_older_result_stays_until_the_new_one_is_complete(tmp_path):
    place = tmp_path / "o.jsonl"
    place.write_text("old")
    place.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(place)
    with plan_output(str(link)).open() as writer:
        writer.write(outcomes()[0])
        assert place.read_text() == "old"
        assert beside(place).exists()
    assert link.is_symlink()
    assert place.read_text().startswith('{"index": 0')
    assert place.stat().st_mode & 0o777 == 0o640


def test_what_a_killed_run_left_is_written_over(tmp_path):
    beside(tmp_path / "o.jsonl").write_text("torn")
    (beside(tmp_path / "o") / "deep").mkdir(parents=True)
    write(tmp_path / "o.jsonl")
    write(f"{tmp_path}/o/")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "o.jsonl"]


def test_stdout_takes_lines(capsys):
    for name in ("-", None):
        text = io.StringIO()
        with plan_output(name, "csv" if name else None).open(stdout=text) as writer:
            writer.write(outcomes()[0])
        assert text.getvalue().startswith("index,id,sample" if name else '{"index": 0')


def test_what_is_no_regular_file_is_written_to_as_it_is():
    write(os.devnull, "jsonl")
    assert Path(os.devnull).is_char_device()


def test_what_cannot_work_is_refused_before_anything_runs(tmp_path, monkeypatch):
    cases = [
        ("in.jsonl", None, "is also the input"),
        ("./sub/../in.jsonl", None, "is also the input"),
        ("link.jsonl", None, "is also the input"),
        ("none/o.jsonl", None, "there is no folder"),
        ("o.doc", None, "the suffix is not that of a known format"),
        ("o.jsonl", "xml", "has to be one of jsonl, openai, csv, tsv, parquet, texts"),
        ("o.parquet.gz", None, "cannot be compressed again"),
        ("full/", None, "is not a folder with results only"),
        ("full", "csv", "is a folder, but csv is one file"),
        ("s3://bucket/o.jsonl", None, "local files only"),
        ("-", "parquet", "cannot go to stdout"),
    ]
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("full").mkdir()
    Path("full/x").touch()
    Path("in.jsonl").touch()
    Path("link.jsonl").symlink_to("in.jsonl")
    for path, form, message in cases:
        with pytest.raises(UsageError, match=message):
            plan_output(path, form, inputs=[tmp_path / "in.jsonl"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_said_and_is_an_error():
    for form in ["jsonl", "csv"]:
        with pytest.raises(GenerationError, match="Cannot write to /dev/full: No space left"):
            write("/dev/full", form, rows=outcomes() * 1000)


def test_an_output_is_a_value():
    assert plan_output("-") == OutputTarget(None, JSONL)


def test_the_option_offers_all_formats():
    assert next(entry for entry in OWN if entry.key == "format").choices == tuple(OUTPUT_FORMATS)


CITY = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}
CITY_TYPE = StructOf((("name", "text"), ("size", "integer")))
DEFS = {
    "City": CITY,
    "Open": {**CITY, "additionalProperties": True},
    "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
    "Colour": {"enum": ["red", "blue"]},
}
TYPES = [
    ({"type": "string", "format": "date"}, "text"),
    ({"type": "integer"}, "integer"),
    ({"type": "number"}, "number"),
    ({"type": ["number", "integer", "null"]}, "number"),
    ({"type": "boolean"}, "boolean"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
    ({"oneOf": [{"const": "a"}, {"const": "b"}, {"const": None}]}, "text"),
    ({"$ref": "#/$defs/Colour"}, "text"),
    ({"allOf": [{"$ref": "#/$defs/Colour"}], "default": "red"}, "text"),
    ({"type": "number", "allOf": [{"type": "integer"}]}, "integer"),
    ({"enum": [1, 2.5, None]}, "number"),
    ({"enum": [1, 2.0]}, "integer"),
    ({"enum": ["a", 1]}, "json"),
    ({"type": ["string", "integer"]}, "json"),
    ({"type": "array", "items": {"type": "string"}}, ListOf("text")),
    ({"type": "array", "items": {"$ref": "#/$defs/City"}}, ListOf(CITY_TYPE)),
    ({"type": "array", "prefixItems": [{"type": "integer"}] * 2, "maxItems": 2}, ListOf("integer")),
    ({"type": "array", "prefixItems": [{"type": "integer"}]}, "json"),
    ({"type": "array"}, "json"),
    ({"$ref": "#/$defs/City"}, CITY_TYPE),
    ({"$ref": "#/$defs/Open"}, "json"),
    ({"anyOf": [{"$ref": "#/$defs/City"}, {"type": "null"}]}, CITY_TYPE),
    ({"anyOf": [{"$ref": "#/$defs/City"}, {"type": "string"}]}, "json"),
    ({"allOf": [{"$ref": "#/$defs/City"}, {"type": "object", "properties": {"x": {}}}]}, "json"),
    ({"$ref": "#/$defs/Node"}, "json"),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, "json"),
    ({"type": "null"}, "json"),
    ({}, "json"),
    (True, "json"),
]


def schema_of(properties, **more):
    return {"$defs": DEFS, "type": "object", "properties": properties, **more}


def columns_of(schema, form="parquet", *, is_open=False, kind="json_schema"):
    spec = OutputSpec(kind, Plan(()), schema=schema)
    return document_columns(spec, OUTPUT_FORMATS[form], is_open=is_open)


def cells(columns, document):
    return dict(columns.cells(0, document))


def test_a_property_has_the_one_type_that_its_schema_allows():
    for schema, type_ in TYPES:
        assert property_types(schema_of({"a": schema}), is_open=False) == {"a": type_}, schema


def test_objects_that_may_have_more_properties_are_json_text():
    schema = schema_of({"city": {"$ref": "#/$defs/City"}, "n": {"type": "integer"}})
    assert property_types(schema, is_open=True) == {"city": "json", "n": "integer"}


def test_alternatives_of_a_document_share_the_columns():
    both = [
        {"properties": {"kind": {"const": "a"}, "size": {"type": "integer"}}},
        {"properties": {"kind": {"const": "b"}, "size": {"type": "number"}, "name": {"type": "string"}}},
    ]
    for schema in ({"anyOf": both}, {"$defs": {"X": {"oneOf": both}}, "$ref": "#/$defs/X"}):
        types = property_types(schema, is_open=False)
        assert types == {"kind": "text", "size": "number", "name": "text"}, schema
    whole = schema_of({"size": {"type": "number"}}, allOf=both)
    assert property_types(whole, is_open=False)["size"] == "integer"


def test_a_schema_that_grows_without_end_is_read_in_bounded_time():
    defs = {
        f"D{n}": {"type": "object", "properties": {key: {"$ref": f"#/$defs/D{n + 1}"} for key in "abcd"}}
        for n in range(30)
    }
    schema = {"$defs": {**defs, "D30": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/D0"}}}
    assert property_types(schema, is_open=False) == {"x": "json"}
    with pytest.raises(UsageError, match="at most 1000 columns"):
        property_types(schema_of({f"p{n}": {"type": "string"} for n in range(1001)}), is_open=False)


def test_a_name_that_another_column_has_is_prefixed():
    names = ["id", "Text", "logprobs", "input.x", "output.id", "name", "NAME"]
    columns = columns_of(schema_of({name: {"type": "string"} for name in names}))
    assert list(columns.names.values()) == [
        "output.id", "output.Text", "output.logprobs", "output.input.x", "output.output.id", "name",
        "output.NAME",
    ]  # fmt: skip
    (notice,) = columns.notices
    assert "id as output.id" in notice
    assert "name as" not in notice
    assert list(generated({"x": "text"}, documents=columns).columns) == [
        *COLUMNS, *columns.names.values(), "input.x",
    ]  # fmt: skip


def test_a_value_that_its_column_cannot_hold_is_null_and_counted():
    types = {
        "i": {"type": "integer"}, "x": {"type": "number"}, "s": {"type": "string"}, "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "integer"}}, "c": {"$ref": "#/$defs/City"}, "j": {},
    }  # fmt: skip
    columns = columns_of(schema_of(types))
    fits = {
        "i": 3.0,
        "x": Decimal("0.12345678901234567891"),
        "l": [2**63 - 1, None],
        "c": {"size": 1},
        "j": "5",
    }
    assert cells(columns, {**fits, "s": None, "other": 1}) == {
        **fits, "i": 3, "x": 0.12345678901234568, "s": None, "c": {"name": None, "size": 1}, "j": '"5"',
    }  # fmt: skip
    assert not list(columns.lines())
    wrong = [
        ("i", 2**63), ("i", 1.5), ("i", True), ("x", 10**400), ("x", "1"), ("s", 1), ("b", 0), ("l", [2**64]),
        ("c", {"name": "a", "more": 1}), ("c", []),
    ]  # fmt: skip
    for name, value in wrong:
        assert cells(columns, {name: value}) == {}, (name, value)
    assert cells(columns, [1]) == {}
    (line,) = columns.lines()
    assert line.startswith(
        f"{len(wrong) + 1} values did not fit their columns and are null there, first in row"
    )
    assert "i is 9223372036854775808, but holds a whole number of 64 bits" in line


def test_tables_have_the_values_and_no_other_format_takes_columns(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    types = {
        "n": {"type": "integer"}, "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}}, "city": {"$ref": "#/$defs/City"}, "any": {},
    }  # fmt: skip
    document = {"n": 7, "ok": True, "tags": ["a,", "b"], "city": {"name": "Bonn", "size": 3}, "any": [1, "x"]}
    error = {"type": "InvalidOutput", "message": "cut"}
    rows = [
        Outcome(0, "a", result(error=error, parsed=None, text=None), is_error=True),
        Outcome(1, "b", result(parsed=document)),
    ]
    for name in ("o.parquet", "o.csv"):
        with plan_output(str(tmp_path / name)).open(
            generated(documents=columns_of(schema_of(types)))
        ) as writer:
            for row in rows:
                writer.write(row)
    table = pq.read_table(tmp_path / "o.parquet")
    stored = {field.name: str(field.type) for field in table.schema if field.name in types}
    assert stored == {
        "n": "int64", "ok": "bool", "tags": "list<element: string>",
        "city": "struct<name: string, size: int64>", "any": "string",
    }  # fmt: skip
    failed, done = table.select([*types, "error_type"]).to_pylist()
    assert failed == {**dict.fromkeys(types), "error_type": "InvalidOutput"}
    assert done == {**document, "any": '[1, "x"]', "error_type": None}
    assert (
        '7,true,"[""a,"", ""b""]","{""name"": ""Bonn"", ""size"": 3}","[1, ""x""]"'
        in (tmp_path / "o.csv").read_text()
    )
    for form in ("jsonl", "openai", "texts"):
        with pytest.raises(UsageError, match=f"`format` is {form}"):
            columns_of(schema_of(types), form)


def test_columns_need_properties_of_a_schema():
    for kind, schema, fault in [
        ("json", {"type": "object"}, "`json` has none"),
        ("regex", None, "`regex` has none"),
        ("json_schema", {"type": "array"}, "names none"),
        ("json_schema", True, "names none"),
    ]:
        with pytest.raises(UsageError, match=fault):
            columns_of(schema, kind=kind)
    beside = OutputSpec("tools", Plan(()), schema={"type": "object"}, has_answer=True)
    with pytest.raises(UsageError, match="with `tools` a text may be a call, which has no columns"):
        document_columns(beside, OUTPUT_FORMATS["csv"], is_open=False)
    with pytest.raises(UsageError, match="properties of a schema"):
        document_columns(None, OUTPUT_FORMATS["csv"], is_open=False)
