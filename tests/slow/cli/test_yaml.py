"""YAML is another form of the JSON that commands write: it reads back as the same values, everywhere."""

import json
import re

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gencli.json_text import to_json
from gencli.yaml_text import to_yaml
from tests.cli.conftest import FAKE
from tests.cli.terminal.test_terminal import commands
from tests.cli.test_yaml import SHORT, without_times

TEXTS = (
    st.text(st.sampled_from(list("a1 -:#\n\t\r\"'|>&*!%@`{}[],?.eo~\x85\u2028\ufeff\x00\x7f\U0001f600")))
    | st.text()
)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
@example("...\n")
def test_any_value_reads_back(value):
    text = to_yaml(value)
    assert text.endswith("\n")
    assert yaml.safe_load(text) == json.loads(to_json(value))

    assert yaml.safe_load(to_yaml(value, encoding="ascii").encode("ascii")) == json.loads(to_json(value))


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


def test_yaml_of_a_command_reads_back_as_its_json(gencli):
    for arguments in COMMANDS.values():
        if arguments[0] == "log":
            gencli("run", *FAKE, "two\nlines", *SHORT, "--log")
        made, other = (gencli(*arguments, "--format", form) for form in ("json", "yaml"))
        assert made.code == other.code == 0, arguments
        assert without_times(yaml.safe_load(other.out)) == without_times(made.json), arguments


def test_every_command_that_writes_json_writes_yaml(gencli):
    forms = {}
    for words in commands():
        found = re.search(r"--format\s+\W?((?:[a-z]+\|)+[a-z]+)", gencli(*words.split(), "--help").out)
        forms[words] = set(found[1].split("|")) if found else set()
    with_json = {words for words, found in forms.items() if "json" in found}
    assert with_json >= {"run", "doctor", "bench run"}
    assert with_json == {words for words, found in forms.items() if "yaml" in found}
    measured = {"bench run"}  # which takes long, and other times each time
    exported = {"config export"}  # whose `format` is part of the preset that it writes
    written = {"quantize"}  # which writes a model
    tried = {words.split(" -")[0] for words in COMMANDS} | {"config show"}  # whose YAML is a preset
    untried = {words for words in with_json if not any(one.startswith(words) for one in tried)}
    marked = {"detect"}  # which needs a marked text; test_watermark.py reads its YAML
    assert untried == measured | exported | written | marked
