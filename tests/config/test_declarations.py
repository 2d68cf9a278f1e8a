"""One declaration gives flag, help, variable, key, schema and docs row; nothing lacks one of them."""

import runpy

import pytest
from jsonschema import Draft202012Validator
from typer.main import get_command

from gencli.cli.app import make_app
from gencli.cli.usage import command_help, describe_option
from gencli.config.presets import KEYS, STRUCTURE, json_schema, unknown_key
from gencli.config.run_options import OPTIONS
from gencli.config.settings import environment_layer
from processors.catalog import BUILTIN
from processors.params import describe
from tests.cli.conftest import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "config_docs.py"))


SCHEMA = json_schema()


def test_pages_are_what_the_declarations_give():
    for file, make in SCRIPT["PAGES"].items():
        page = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert page == make(), f"run scripts/config_docs.py: {file}"


@pytest.fixture(scope="module")
def flags():
    run = get_command(make_app(["run"])).commands["run"]
    return {flag for parameter in run.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def test_an_option_has_flag_help_variable_key_schema_and_docs(flags):
    rows, listed = SCRIPT["options_page"](), command_help()
    for entry in OPTIONS:
        assert set("/".join(entry.names).split("/")) <= flags, entry
        assert entry.help.endswith("."), entry
        assert entry.flag in listed, entry
        assert environment_layer({entry.variable: ""}).values == {}, entry  # it is known
        assert f"| `{entry.variable}` |" in rows, entry
        if entry.flag_only:
            assert entry.flag_only in rows, entry
            said = f"{entry.key} is a flag only, no key of a preset: {entry.flag_only}."
            assert said == unknown_key(entry.key), entry
        else:
            assert entry.key in KEYS or entry.key in STRUCTURE, entry
            described = SCHEMA["properties"][entry.key]["description"]
            assert described == STRUCTURE.get(entry.key, entry.help), entry
            assert describe_option(entry).replace("|", "\\|").replace("\\n", "\\\\n")[:40] in rows, entry


def test_a_stage_has_schema_and_docs():
    page = SCRIPT["stages_page"]()
    for spec in BUILTIN:
        assert f"## {spec.name}\n" in page, spec
        for field, about in describe(spec.params).items():
            assert f"| `{field}` |" in page, spec
            if spec.name in SCHEMA["$defs"]:
                declared = SCHEMA["$defs"][spec.name]["anyOf"][1]["properties"][field]
                assert declared["description"] == about["doc"], (spec, field)


@pytest.fixture(scope="module")
def validator():
    Draft202012Validator.check_schema(SCHEMA)
    return Draft202012Validator(SCHEMA)
