"""What needs no model: help, version, errors, and the forms of records."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.main import get_command

from gencli import __version__
from gencli.cli.app import COMMANDS, make_app
from gencli.cli.usage import command_help
from gencli.config.run_options import OPTIONS
from gencli.json_text import to_json
from gencli.models.files.local_models import bundled_folder
from gencli.yaml_text import to_yaml
from tests.cli.conftest import FAKE
from tests.cli.test_app import SHORT, without_times
from tests.cli.test_render import commands


def test_help_lists_every_command_and_flag_that_typer_knows(gencli):
    group = get_command(make_app(COMMANDS))
    of_completion = ("--install-completion", "--show-completion")  # typer's, for which there is a command
    flags = [flag for parameter in group.params for flag in parameter.opts if flag not in of_completion]
    result = gencli("--help")
    assert result.code == 0
    assert [word for word in [*group.commands, *flags] if word not in result.out] == []
    assert gencli("-h").out == result.out

    for width in (80, 110):
        text = command_help(width)
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= width

    assert gencli("--version").out == f"gencli {__version__}\n"

    assert [entry.flag for entry in OPTIONS if not entry.help.endswith(".")] == []


def test_help_of_run_lists_every_flag_that_typer_knows_as_docs_do(gencli):
    command = get_command(make_app(COMMANDS)).commands["run"]
    flags = [
        flag for parameter in command.params[1:] for flag in (*parameter.opts, *parameter.secondary_opts)
    ]
    result = gencli("run", "--help")
    assert result.code == 0
    assert [flag for flag in flags if flag not in result.out] == ["--help-topic"]  # what --help TOPIC becomes

    short = gencli("run", "-h").out
    assert short != result.out
    assert 'gencli run "Once upon a time" --top-p 0.9 --seed 7\n' in short
    group = gencli("run", "--help", "drafts").out
    assert group.startswith("Drafts:\n")
    assert group in result.out
    gencli("run", "--help", "dreams").refused("drafts")

    import runpy

    from tests.cli.conftest import ROOT

    script = runpy.run_path(str(ROOT / "scripts" / "config_docs.py"))
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert page == script["commands_page"]()


DEADLY = "a" * 28 + "b"


@pytest.fixture
def panicking(tmp_path):
    """A model whose tokenizer panics at one text: its expression takes more steps than the library allows."""
    folder = Path(shutil.copytree(bundled_folder("tiny-draft"), tmp_path / "model"))
    found = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    found["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, found["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(found))
    return folder


def test_a_panic_of_a_tokenizer_is_an_error_of_the_model(gencli, panicking):
    for words in [("run", "--max-tokens", "2"), ("tokenize",)]:
        result = gencli(*words, "-m", panicking, DEADLY)
        assert result.code == 5, words
        assert "Error: The tokenizer of" in result.err, words
        assert "Traceback" not in result.err, words


def test_a_panic_of_a_tokenizer_ends_one_row_of_a_batch(gencli, panicking, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("ab", DEADLY, "ba")))
    result = gencli("batch", rows, "-m", panicking, "--max-tokens", "2", "-o", "-", "--quiet")
    assert result.code == 7
    assert [bool(line["error"]) for line in result.lines] == [False, True, False]


def test_no_token_within_the_time_is_an_error_of_every_command(gencli, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "hi"}\n')
    late, sides = ("-m", "fake", "--max-time", "0.000001"), ("--a", "top_k=4", "--b", "top_k=5")
    for command, code in (
        (("run", "hi"), 6),
        (("run", "hi", "--beams", "2"), 6),
        (("run", "hi", "--prompt-logprobs", "0"), 6),
        (("explain", "hi"), 6),
        (("sweep", "--vary", "top_k=4,5", "hi"), 6),
        (("sweep", "--vary", "top_k=4,5", "--first", "hi"), 6),
        (("compare", *sides, "hi"), 6),
        (("batch", rows, "-o", tmp_path / "out.jsonl"), 7),
    ):
        found = gencli(*command, *late)
        assert found.code == code, (command, found)
        assert "--max-time passed before the first token." in found.err + found.out, command


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
WITH_JSON = {
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
    for arguments in WITH_JSON.values():
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
    tried = {words.split(" -")[0] for words in WITH_JSON} | {"config show"}  # whose YAML is a preset
    untried = {words for words in with_json if not any(one.startswith(words) for one in tried)}
    marked = {"detect"}  # which needs a marked text; test_watermark.py reads its YAML
    assert untried == measured | exported | written | marked
