"""The schema for editors accepts what the tool accepts."""

import json

import yaml

from tests.cli.conftest import ROOT
from tests.config.test_presets import SHIPPED
from tests.config.test_run_options import SCHEMA, validator
from tests.slow.config.test_presets import FILES


def test_the_schema_is_json_and_admits_the_shipped_presets(validator):
    for name in SHIPPED:
        content = yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))
        assert [error.message for error in validator.iter_errors(content)] == [], name

    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


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
