"""One declaration gives flag, help, variable, key, schema and docs row; nothing lacks one of them."""

import json

import yaml

from tests.cli.conftest import ROOT
from tests.config.presets.test_presets import SHIPPED
from tests.config.test_declarations import SCHEMA, validator


def test_the_schema_is_json_and_admits_the_shipped_presets(validator):
    for name in SHIPPED:
        content = yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert [error.message for error in validator.iter_errors(content)] == [], name

    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
