"""What needs no model: help, version, errors, and the forms of records."""

import shlex

import pytest
import yaml

from gencli.cli.app import COMMANDS, command_of
from gencli.cli.usage import command_help, explain, short_help
from gencli.config.result_formats import FORMATS, array_parts
from gencli.errors import UsageError
from gencli.json_text import to_json
from gencli.yaml_text import to_yaml


def test_a_word_that_is_not_known_names_the_nearest(gencli):
    for arguments, said in [
        (["rnu"], "Did you mean 'run'?"),
        (["--versoin"], "Did you mean '--version'?"),
        (["Once upon a time"], "gencli run 'Once upon a time'"),
        (["run", "--temprature", "1", "x"], "Did you mean --temperature?"),
        (["run", "- item"], "Put -- before"),
        (["run", "--top-k"], "--top-k"),
    ]:
        result = gencli(*arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert result.err.startswith("Error: "), arguments
        assert said in result.err, arguments

    gencli().refused("Usage: gencli")


def test_debug_shows_the_traceback_and_nothing_else_does(gencli):
    from gencli.errors import UsageError

    assert "Traceback" not in gencli("run", "--top-p", "7", "x").err
    with pytest.raises(UsageError):
        gencli("run", "--top-p", "7", "--debug", "x")


PAGES = [page for name in COMMANDS if (page := getattr(command_of(name), "page", None))]


def test_the_short_help_of_a_command_is_one_screen_with_command_lines_that_exist():
    assert len(PAGES) > 15
    for page in PAGES:
        text = short_help(80, page=page)
        assert len(text.splitlines()) <= 50, page.name
        assert max(map(len, text.splitlines())) <= 82, page.name
        flags = {name for entry in page.options for name in "/".join(entry.names).split("/")}
        for line in page.examples:
            assert line in text, page.name
            own = [part for part in line.split("; ") if part.startswith(page.name)]
            words = shlex.split(own[0])
            assert {word for word in words if word.startswith("-")} <= flags, line


def test_a_command_shows_first_what_only_it_has():
    (sweep,) = (page for page in PAGES if page.name == "gencli sweep")
    text = command_help(80, page=sweep)
    assert text.index("Sweep:") < text.index("  --vary KEY") < text.index("Prompt:")
    assert command_help(80, page=sweep, topic="Sweep") in text
    with pytest.raises(UsageError, match="The help of gencli sweep has no group 'weather'") as caught:
        command_help(80, page=sweep, topic="weather")
    assert "sweep, prompt, presets" in caught.value.hint


def test_an_exit_or_a_panic_from_anywhere_has_a_message():
    panic = type("PanicException", (BaseException,), {})("no")
    assert "Rust" in explain(panic).message

    for ended in [SystemExit(3), SystemExit(), GeneratorExit()]:
        assert type(ended).__name__ in explain(ended).message, ended


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
        assert "".join(array_parts(records, FORMATS["json"])) == to_json(records, indent=2) + "\n", records
        assert yaml.safe_load("".join(array_parts(records, FORMATS["yaml"]))) == records, records
