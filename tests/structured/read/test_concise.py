"""A line of fields becomes a schema; what is no field is shown with a caret."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import SchemaError
from gencli.structured.schema_inputs import TYPES, parse_concise
from tests.helpers.refusal import refusal


def properties(text):
    return parse_concise(text)["properties"]


def test_fields_are_required_and_closed():
    assert parse_concise("name, age int") == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }


def test_types_have_short_names():
    for short, name in TYPES.items():
        assert properties(f"a {short}, b[] {short}") == {
            "a": {"type": name},
            "b": {"type": "array", "items": {"type": name}},
        }, short


def test_a_description_follows_a_colon():
    assert properties("name: the person's name, age int: in years: full ones, tags[]: words") == {
        "name": {"type": "string", "description": "the person's name"},
        "age": {"type": "integer", "description": "in years: full ones"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "words"},
    }


def test_with_one_field_a_line_descriptions_have_commas():
    assert properties("\n  name\n\n  bio: short, no more than {three} words\r\n  age int\n") == {
        "name": {"type": "string"},
        "bio": {"type": "string", "description": "short, no more than {three} words"},
        "age": {"type": "integer"},
    }


def test_names_are_free():
    for name in ["first-name", "größe", "$id", "a.b", "int", "1"]:
        assert list(properties(f"{name}, other")) == [name, "other"], name


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


def test_a_fault_among_lines_names_the_line():
    with pytest.raises(SchemaError, match="line 2, column 5: 'xnt'"):
        parse_concise("name\nage xnt\n")


def test_no_field_is_no_schema():
    for text in ["", "  \n "]:
        assert re.search("empty", refusal(SchemaError, parse_concise, text)), text


@given(st.text(alphabet="ab :,[]{}?\nintsr", max_size=20))
def test_any_text_is_a_schema_that_can_be_used_or_refused(text):
    try:
        schema = parse_concise(text)
    except SchemaError:
        return
    check_schema(schema)
