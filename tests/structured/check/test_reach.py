"""A path is refused if no document of the schema has it, and only then."""

from gencli.structured.schema_check import unreached

ITEM = {"properties": {"name": {"type": "string"}, "sub": {"$ref": "#/$defs/item"}}}
UNION = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": True}}]}
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "pair": {"type": "array", "prefixItems": [{"const": 1}, {"properties": {"a": {}}}], "items": False},
        "few": {"type": "array", "maxItems": 2},
        "u": UNION,
        "both": {"allOf": [{"properties": {"a": True}}, {"properties": {"b": False}}]},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": True}}},
        "when": {"if": {"type": "string"}, "then": {}},
        "p": {"patternProperties": {"^x": {"type": "string"}}},
    },
    "$defs": {"item": ITEM},
}
REACHED = """/id /items/*/name /items/7/sub/sub/name /pair/1/a /pair/*/a /u/x /both/a /map/any/y /map/*/y
    /when/z /p/xy /* /*/*/name /few/1""".split()
NOT = {
    "/nme": "the root", "/id/a": "/id", "/kind/a": "/kind", "/items/name": "/items",
    "/items/*/nme": "/items/*", "/pair/0/a": "/pair/0", "/pair/2": "/pair", "/u/y": "/u", "/both/b": "/both",
    "/map/any/z": "/map/any", "/p/y": "/p", "/few/2": "/few",
}  # fmt: skip


def test_a_path_that_a_document_may_have_is_reached():
    for path in ["", *REACHED]:
        assert unreached(SCHEMA, path, is_open=False) is None, path


def test_a_path_that_no_document_has_is_named_where_it_leaves():
    for path in NOT:
        found = unreached(SCHEMA, path, is_open=False)
        assert found is not None, path
        assert found[0] == NOT[path], path


def test_the_names_that_are_there_are_told():
    assert unreached(SCHEMA, "/items/0/x", is_open=False) == ("/items/0", ("name", "sub"))


def test_open_objects_may_have_any_property():
    assert unreached(SCHEMA, "/nme", is_open=True) is None
    assert unreached({"additionalProperties": False, "properties": {"a": 1}}, "/b", is_open=True) is not None
    assert unreached({"type": "object"}, "/b/c/0", is_open=False) is None


def test_a_schema_with_very_many_alternatives_reaches_all():
    wide = {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": True}} for j in range(9)]} for i in range(9)]}
    assert unreached(wide, "/b", is_open=False) is None
