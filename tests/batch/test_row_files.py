"""What a row says is data: it gives schemas and grammars themselves, and cannot have a file read."""

from itertools import product

import pytest

from gencli.batch.batch_rows import row_layer
from gencli.errors import UsageError
from processors.registry import builtin_registry


def test_a_row_cannot_have_a_file_read(tmp_path, monkeypatch):
    keys = ("json_schema", "grammar", "lark", "structural_tag", "tools")
    names = ("secret.json", "here", "/dev/zero", "some/where")
    monkeypatch.chdir(tmp_path)
    for name in names[:2]:
        (tmp_path / name).write_text("{}")
    for key, name in product(keys, names):
        with pytest.raises(UsageError, match=f"{key} names a file, which a row cannot read"):
            row_layer({key: name}, builtin_registry())


def test_a_row_gives_its_schema_as_an_object_or_as_text():
    cases = [
        {"type": "integer"}, '{"type": "integer"}', "name, age int", True, "age int\nnotes: as in a.json",
    ]  # fmt: skip
    for schema in cases:
        assert row_layer({"json_schema": schema}, builtin_registry()).values["json_schema"], schema
