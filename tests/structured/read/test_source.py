"""An option's text is a file, a JSON text or the concise form, by its first and last letters."""

import re

import pytest

from gencli.structured.schema_check import MAX_BYTES
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_source import read_schema
from tests.helpers.refusal import refusal

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3.141592653589793}}}
TEXT = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 3.14159265358979323846}}}'
YAML = "type: object\nproperties:\n  a: {type: integer, maximum: 3.141592653589793}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_in_braces_is_json():
    for text in [TEXT, f"\n {TEXT}\n"]:
        assert read_schema(text) == SCHEMA, text


def test_switches_are_schemas():
    for text, value in [("true", True), (" false\n", False)]:
        assert read_schema(text) is value, text


def test_a_name_with_an_ending_is_a_file(here):
    for name, text in [("a.json", TEXT), ("A.JSON", TEXT), ("a.yaml", YAML), ("a.yml", YAML)]:
        (here / name).write_text(text)
        assert read_schema(name) == SCHEMA, name
        assert read_schema(str(here / name)) == SCHEMA, name


def test_a_file_that_exists_needs_no_ending(here):
    (here / "person").write_text(TEXT)
    assert read_schema("person") == SCHEMA
    assert list(read_schema("persons")["properties"]) == ["persons"]


def test_a_home_that_is_not_known_is_a_schema_that_cannot_be_read():
    with pytest.raises(SchemaError, match="cannot be read"):
        read_schema("~no-such-user/a.json")


def test_anything_else_is_the_concise_form(here):
    assert list(read_schema("name, age int")["properties"]) == ["name", "age"]
    assert list(read_schema("a: " + "x" * 5000)["properties"]) == ["a"]
    assert list(read_schema("notes: as in a.json\nage")["properties"]) == ["notes", "age"]


def test_a_file_that_is_no_schema_is_refused(here):
    for name, text, part in [
        ("a.json", '{"a": 1, "a": 2}', "line 1, column 10: the key 'a' stands twice"),
        ("a.json", "[]", "is a list, but has to be an object"),
        ("a.json", "null", "is null"),
        ("a.json", "5", "is a number"),
        ("a.json", "", "line 1, column 1"),
        ("a.json", "\ufeff{}", "byte order mark"),
        ("a.json", '{"maximum": 1e999}', "too large for a double"),
        ("a.yaml", "a: 1\na: 2\n", "a.yaml:2:1: The key 'a' is here and in line 1"),
        ("a.yaml", "a: !!python/name:os.system\n", "not allowed"),
        ("a.yaml", "enum: [.nan]\n", "JSON has no number"),
        ("a.yaml", "properties: {1: {}}\n", "has to be a text"),
        ("a.yaml", "- a\n", "is a list"),
        ("a.yaml", "", "is null"),
        ("a.yaml", "a: " + "[" * 70 + "]" * 70, "more than 64 deep"),
    ]:
        (here / name).write_text(text, encoding="utf-8")
        with pytest.raises(SchemaError, match=part) as caught:
            read_schema(name)
        assert name in caught.value.message, name


def test_a_file_that_is_missing_is_named(here):
    for name in ("missing.json", "some/where", "./none", "../none", "/my schemas/a, b", "~/none: old"):
        with pytest.raises(SchemaError, match="cannot be read: No such file"):
            read_schema(name)
    assert list(read_schema("speed_km/h float, age int")["properties"]) == ["speed_km/h", "age"]


def test_a_file_that_is_no_text_is_named(here):
    (here / "a.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(SchemaError, match="not UTF-8"):
        read_schema("a.json")


def test_a_large_file_is_refused_by_its_size(here):
    for ending in ["json", "yaml"]:
        name = f"a.{ending}"
        (here / name).write_bytes(b" " * (MAX_BYTES * 5))
        assert re.search(
            f"has {MAX_BYTES * 5} bytes, but the limit is {MAX_BYTES}",
            refusal(SchemaError, read_schema, name),
        ), ending


def test_json_on_the_command_line_is_read_strictly():
    with pytest.raises(SchemaError, match="stands twice"):
        read_schema('{"type": "object", "type": "array"}')
