"""YAML is another form of the JSON that commands write: it reads back as the same values, everywhere."""

import yaml

from gencli.cli.usage import array_parts
from gencli.json_text import to_json
from gencli.yaml_text import to_yaml

SHORT = ("--max-tokens", "6", "--seed", "1")


TIMED = ("timings", "compile_seconds")


def without_times(found):
    """The record without what the clock decides."""
    return (
        {key: value for key, value in found.items() if key not in TIMED} if isinstance(found, dict) else found
    )


def test_prompts_are_documents_where_json_lines_has_lines(run):
    lines = run("hi", "yo", *SHORT, "--format", "jsonl").lines
    text = run("hi", "yo", *SHORT, "--format", "yaml").out
    assert text.count("\n---\n") == 1
    assert [*map(without_times, yaml.safe_load_all(text))] == [*map(without_times, lines)]


def test_texts_are_literal_blocks_or_quoted():
    assert to_yaml({"text": "one\n  two\n"}) == "text: |\n  one\n    two\n"

    for text in ["1e5", "0o17", "no", "1:30", "2020-01-01", "~", "", "0x1F", "1_000", ".5"]:
        assert to_yaml({"text": text})[len("text: ")] in "'\"", text

    for records in [[], [{"a": 1}], [{"a": "x\ny"}, {"b": [2]}, {}]]:
        assert "".join(array_parts(records, "json")) == to_json(records, indent=2) + "\n", records
        assert yaml.safe_load("".join(array_parts(records, "yaml"))) == records, records
