"""One declaration gives flag, help, variable, key, schema and docs row; nothing lacks one of them."""

import runpy

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.main import get_command

from gencli.cli.app import make_app
from gencli.cli.parser.help import command_help, describe_option
from gencli.config.environment import environment_layer
from gencli.config.options.run import OPTIONS
from gencli.config.presets.keys import KEYS, STRUCTURE, unknown_key
from gencli.config.presets.preset_schema import json_schema
from processors.catalog import BUILTIN
from processors.params import describe
from tests.cli.conftest import ROOT
from tests.slow.config.test_malformed import FILES

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
    rows, listed = SCRIPT["presets_page"](), command_help()
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


# What only the tool sees: the text before it is a value, other files, keys that do not go together.
BEYOND = """alias_bomb broken_pattern chain_leaves_out_a_stage chat_and_raw circle_of_two circle_of_two_back
    control_character duplicate_key duplicate_key_in_a_stage empty_ban extends_a_missing_file extends_itself
    extends_nothing_known field_set_in_chain_too field_set_twice greedy_samples infinite_number list_as_key
    mask_after_a_cut no_allowed_ids not_a_number not_utf8 open_bracket penalty_window_without_a_penalty
    recursive_alias stage_twice_in_chain tab_as_indent two_documents undefined_alias python_tag own_tag
    date_tag deep_nesting endless_digits half_a_character word_with_a_number_tag
    merge_key endless_bias switch_in_words number_key several_at_once
    item_that_is_banned_empty item_that_is_a_broken_pattern""".split()


def test_the_schema_refuses_what_the_tool_refuses(validator):
    contents = {path: yaml.safe_load(path.read_text("utf-8")) for path in FILES if path.stem not in BEYOND}
    assert [path for path, content in contents.items() if validator.is_valid(content)] == []
