"""A schema from a file, a JSON text, a line of fields, or a user's model."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.errors import ConfigError
from gencli.structured.schema_check import MAX_BYTES, check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_inputs import TYPES, load_model, parse_concise
from gencli.structured.schema_source import read_schema
from tests.helpers.refusal import refusal

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 3.141592653589793}}}
TEXT = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 3.14159265358979323846}}}'
YAML = "type: object\nproperties:\n  a: {type: integer, maximum: 3.141592653589793}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_text_in_braces_or_a_switch_is_json():
    for text in [TEXT, f"\n {TEXT}\n"]:
        assert read_schema(text) == SCHEMA, text
    for text, value in [("true", True), (" false\n", False)]:
        assert read_schema(text) is value, text
    assert "stands twice" in refusal(SchemaError, read_schema, '{"type": "object", "type": "array"}')


def test_a_name_with_an_ending_is_a_file(here):
    for name, text in [("a.json", TEXT), ("A.JSON", TEXT), ("a.yaml", YAML), ("a.yml", YAML)]:
        (here / name).write_text(text)
        assert read_schema(name) == SCHEMA, name
        assert read_schema(str(here / name)) == SCHEMA, name


def test_a_file_that_exists_needs_no_ending(here):
    (here / "person").write_text(TEXT)
    assert read_schema("person") == SCHEMA
    assert list(read_schema("persons")["properties"]) == ["persons"]


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
    (here / "a.json").write_bytes(b'{"\xff": 1}')
    assert "not UTF-8" in refusal(SchemaError, read_schema, "a.json")
    for name in ("large.json", "large.yaml"):
        (here / name).write_bytes(b" " * (MAX_BYTES * 5))
        size = f"has {MAX_BYTES * 5} bytes, but the limit is {MAX_BYTES}"
        assert size in refusal(SchemaError, read_schema, name), name


def test_a_file_that_is_missing_is_named(here):
    for name in ("missing.json", "some/where", "./none", "../none", "/my schemas/a, b", "~/none: old"):
        with pytest.raises(SchemaError, match="cannot be read: No such file"):
            read_schema(name)
    assert "cannot be read" in refusal(SchemaError, read_schema, "~no-such-user/a.json")
    assert list(read_schema("speed_km/h float, age int")["properties"]) == ["speed_km/h", "age"]


def properties(text):
    return parse_concise(text)["properties"]


def test_fields_are_required_and_closed_with_short_types_and_free_names():
    assert parse_concise("name, age int") == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    for short, name in TYPES.items():
        expected = {"a": {"type": name}, "b": {"type": "array", "items": {"type": name}}}
        assert properties(f"a {short}, b[] {short}") == expected, short
    for name in ["first-name", "größe", "$id", "a.b", "int", "1"]:
        assert list(properties(f"{name}, other")) == [name, "other"], name


def test_a_description_follows_a_colon_and_with_one_field_a_line_has_commas():
    assert properties("name: the person's name, age int: in years: full ones, tags[]: words") == {
        "name": {"type": "string", "description": "the person's name"},
        "age": {"type": "integer", "description": "in years: full ones"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
    }
    assert properties("\n  name\n\n  bio: short, no more than {three} words\r\n  age int\n") == {
        "name": {"type": "string"},
        "bio": {"type": "string", "description": "short, no more than {three} words"},
        "age": {"type": "integer"},
    }


def test_what_is_no_field_is_shown_with_a_caret():
    for text, column, part in [
        ("a,,b", 3, "a name has to stand here"),
        ("a, ", 3, "a name has to stand here"),
        (", a", 1, "a name has to stand here"),
        ("age integer", 5, "did you mean int?"),
        ("age itn", 5, "did you mean int?"),
        ("a: some, no more than three", 13, "there are str, int, float, bool"),
        ("a, b?", 5, "every field is required"),
        ("person {name}", 8, "objects within objects"),
        ("a: x, [b]", 7, "objects within objects"),
        ("tags int[]", 6, "a list is written tags[] int"),
        ("tags []", 6, "a list is written tags[]"),
        ("a int, a", 8, "defined twice"),
        ("a | b", 3, "'|' cannot stand here"),
        ("a int, b=int", 9, "'=' cannot stand here"),
    ]:
        with pytest.raises(SchemaError) as caught:
            parse_concise(text)
        _, line, caret = caught.value.message.split("\n")
        assert line == "  " + text.strip(), text
        assert caret == "  " + " " * (column - 1) + "^", text
        assert f"column {column}" in caught.value.message, text
        assert part in caught.value.message, text
    assert "line 2, column 5: 'xnt'" in refusal(SchemaError, parse_concise, "name\nage xnt\n")
    for text in ["", "  \n "]:
        assert "empty" in refusal(SchemaError, parse_concise, text), text


@given(st.text(alphabet="ab :,[]{}?\nintsr", max_size=20))
def test_any_text_is_a_schema_that_can_be_used_or_refused(text):
    try:
        schema = parse_concise(text)
    except SchemaError:
        return
    check_schema(schema)


CODE = """
from dataclasses import dataclass
from datetime import date
from typing import Callable, Literal

from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

class Person(BaseModel):
    name: str = Field(min_length=2)
    born: date
    friends: list["Person"] = []

    @field_validator("name")
    @classmethod
    def is_title(cls, name):
        if name == "boom":
            raise RuntimeError("broken")
        if not name.istitle():
            raise ValueError("a name is capitalised")
        return name

@dataclass
class Point:
    x: int
    y: float = 0.0

class Row(TypedDict):
    id: int
    kind: Literal["a", "b"]

class Shop:
    Person = Person

People = list[Person]
Either = Point | Row
number = 5

class Odd:
    pass

class NoSchema(BaseModel):
    call: Callable[[], int]
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    pytest.importorskip("pydantic")
    (tmp_path / "our_models.py").write_text(CODE)
    (tmp_path / "broken_models.py").write_text("1 / 0\n")
    (tmp_path / "leaving_models.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "needing_models.py").write_text("import surely_not_installed\n")
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.endswith("_models")]:
        del sys.modules[name]


def test_a_model_gives_a_schema_that_can_be_used(models):
    before = list(sys.path)
    for name in ["Person", "Shop.Person", "Point", "Row", "People", "Either"]:
        schema = load_model(f"our_models:{name}").schema()
        check_schema(schema)
        assert schema, name
    assert sys.path == before


def test_a_model_judges_by_its_own_validators(models):
    model = load_model("our_models:Person")
    assert model.faults('{"name": "Ada", "born": "1815-12-10"}') == ()
    assert model.faults('{"name": "ada", "born": "1815-12-10"}') == (
        '/name: Value error, a name is capitalised, not "ada"',
    )
    first, second = model.faults(
        '{"name": "Ada", "born": "x", "friends": [{"name": "Bo", "born": "1815-12-10"}, 1]}'
    )
    assert first.startswith("/born: ")
    assert second.startswith("/friends/1: ")
    (fault,) = model.faults('{"name": "boom", "born": "1815-12-10"}')
    assert "raised RuntimeError: broken" in fault


def test_what_is_no_model_is_refused(models):
    for name, part in [
        ("our_models", "names no model"),
        (":Person", "names no model"),
        ("not_here_models:Person", "no module 'not_here_models'"),
        ("our_models.inner:Person", "no module 'our_models.inner'"),
        ("needing_models:Person", "needs surely_not_installed"),
        ("broken_models:Person", "cannot be imported: ZeroDivisionError"),
        ("leaving_models:Person", "cannot be imported: SystemExit"),
        ("our_models:Persn", "no 'Persn' in our_models"),
        ("our_models:number", "is a int, but has to be a pydantic model"),
        ("our_models:Odd", "is a type, but has to be a pydantic model"),
        ("our_models:Shop.number", "no 'number'"),
    ]:
        assert re.search(part, refusal(ConfigError, load_model, name)), name
    assert "has no JSON schema" in refusal(ConfigError, load_model("our_models:NoSchema").schema)


def test_without_pydantic_one_is_told_what_to_install(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigError, match="needs pydantic") as caught:
        load_model("our_models:Person")
    assert "pip install" in caught.value.hint
