"""Columns of documents: their types follow from the schema alone, and what they cannot hold is said."""

from decimal import Decimal

import pytest

from gencli.batch.batch_records import Outcome
from gencli.batch.output_formats import OUTPUT_FORMATS, plan_output
from gencli.batch.table_columns import COLUMNS, ListOf, StructOf, document_columns, generated, property_types
from gencli.errors import UsageError
from gencli.structured.output_spec import OutputSpec, Plan
from tests.batch.test_openai import result

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
