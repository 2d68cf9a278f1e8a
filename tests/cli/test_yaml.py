"""YAML is another form of the JSON that commands write: it reads back as the same values, everywhere."""

import re

import yaml

from gencli.cli.terminal.records import array_parts
from gencli.json_text import to_json
from gencli.yaml_text import to_yaml
from tests.cli.conftest import FAKE
from tests.cli.terminal.test_terminal import commands

SHORT = ("--max-tokens", "6", "--seed", "1")


SCHEMA = '{"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}}}'


# Every command that has --format json, with arguments that show something.
COMMANDS = {
    "compare": ("compare", "-m", "fake", *SHORT, "--a", "top_k=9", "--b", "top_k=3", "two\nlines"),
    "run": ("run", *FAKE, "two\nlines", *SHORT),
    "run -n": ("run", *FAKE, "hi", *SHORT, "-n", "2", "--logit-bias", "98=-inf"),
    "run --show-chain": ("run", "--show-chain", "--top-k", "5", "--ban", "two\nlines"),
    "models list": ("models", "list"),
    "models show": ("models", "show", "tiny"),
    "models alias": ("models", "alias"),
    "schema audit": ("schema", "audit", SCHEMA),
    "tokenize": ("tokenize", "-m", "fake", "a \x00\n\tb"),
    "doctor": ("doctor",),
    "sweep": ("sweep", *FAKE, "--seed", "1", "--max-tokens", "3", "--vary", "top_k=2,3", "hi"),
    "log list": ("log", "list"),
    "log show": ("log", "show", "last"),
}


TIMED = ("timings", "compile_seconds")


def without_times(found):
    """The record without what the clock decides."""
    return (
        {key: value for key, value in found.items() if key not in TIMED} if isinstance(found, dict) else found
    )


def test_yaml_of_a_command_reads_back_as_its_json(gencli):
    for arguments in COMMANDS.values():
        if arguments[0] == "log":
            gencli("run", *FAKE, "two\nlines", *SHORT, "--log")
        made, other = (gencli(*arguments, "--format", form) for form in ("json", "yaml"))
        assert made.code == other.code == 0, arguments
        assert without_times(yaml.safe_load(other.out)) == without_times(made.json), arguments


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


def test_every_command_that_writes_json_writes_yaml(gencli):
    forms = {}
    for words in commands():
        found = re.search(r"--format\s+\W?((?:[a-z]+\|)+[a-z]+)", gencli(*words.split(), "--help").out)
        forms[words] = set(found[1].split("|")) if found else set()
    with_json = {words for words, found in forms.items() if "json" in found}
    assert with_json >= {"run", "doctor", "bench batch"}
    assert with_json == {words for words, found in forms.items() if "yaml" in found}
    measured = {
        "bench batch",
        "bench gpu",
        "bench grammar",
        "bench run",
        "bench sampler",
        "bench serve",
        "bench speculate",
        "bench stages",
        "bench step",
    }  # which take long, and other times each time
    exported = {"config export"}  # whose `format` is part of the preset that it writes
    written = {"quantize"}  # which writes a model
    tried = {words.split(" -")[0] for words in COMMANDS} | {"config show"}  # whose YAML is a preset
    untried = {words for words in with_json if not any(one.startswith(words) for one in tried)}
    marked = {"detect"}  # which needs a marked text; test_watermark.py reads its YAML
    assert untried == measured | exported | written | marked
