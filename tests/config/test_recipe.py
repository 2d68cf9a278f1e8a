"""A recorded run is repeated with its own files, or not at all."""

from dataclasses import replace
from hashlib import sha256

import pytest

from gencli.config.layers import Recipe
from gencli.errors import ConfigError


def test_a_file_that_is_not_recorded_with_its_hash_is_refused(tmp_path):
    schema, other = tmp_path / "s.json", tmp_path / "other.json"
    for file in (schema, other):
        file.write_text("true")
    record = {"path": str(schema), "sha256": sha256(b"true").hexdigest()}
    whole = Recipe(f"model: fake\nseed: 1\njson_schema: {schema}\n", {}, {"json_schema": record})
    assert whole.settings({}, "file")["json_schema"] == str(schema)
    of_other = replace(whole, preset=whole.preset.replace("s.json", "other.json"))
    for recipe, file in ((replace(whole, files={}), schema), (of_other, other)):
        with pytest.raises(ConfigError, match=f"The file has no hash of {file} .json_schema."):
            recipe.settings({}, "file")
    schema.write_text("false")
    with pytest.raises(ConfigError, match="has changed since"):
        whole.settings({}, "file")
