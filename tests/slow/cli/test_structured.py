"""Structured output from the shell: a valid result and exit 0, or a reason and another code."""

import json

import pytest

from processors.testing.examples import HOSTILE
from tests.cli.test_result_writers import valid
from tests.cli.test_structured import ALL, LETTERS, LOOSE, PERSON, fake, schema

NORA = "Sentence: Nora is a 41 year old pilot from Quito.\nJSON:"


@pytest.fixture
def tiny(gencli):
    """Call `gencli run` on the bundled model, greedily."""
    return lambda *arguments, **kwargs: gencli("run", "-t", "0", *arguments, **kwargs)


def test_a_schema_gives_a_document_and_exit_0(tiny, schema):
    result = tiny("--json-schema", schema, NORA)
    assert (result.code, result.json) == (0, {"name": "Nora", "age": 41, "job": "pilot", "city": "Quito"})

    for given in [json.dumps(PERSON), "name, age int, job, city"]:
        assert tiny("--json-schema", given, NORA).json["age"] == 41, given

    result = tiny("--json", "--parsed", NORA, NORA.replace("41", "42"))
    assert [record["age"] for record in result.lines] == [41, 42]


def test_a_part_of_the_document_or_all_of_it_in_one_line(tiny, schema):
    assert tiny("--json-schema", schema, "--select", "/age", NORA).out == "41\n"
    assert tiny("--json-schema", schema, "--select", "/job", NORA).out == "pilot\n"
    line = '{"name":"Nora","age":41,"job":"pilot","city":"Quito"}\n'
    assert tiny("--json-schema", schema, "--parsed", NORA).out == line
    assert tiny("--json", "--parsed", NORA).out == line

    tiny("--json-schema", schema, "--select", "/wage", NORA).refused("no /wage", code=6)


def test_a_document_that_is_cut_is_no_result(tiny, schema, tmp_path):
    tiny("--json-schema", schema, "--max-tokens", "8", NORA).refused("--max-tokens cut it", code=6)
    partial = tiny("--json-schema", schema, "--max-tokens", "8", "--partial", NORA)
    assert (partial.code, partial.out[:9]) == (6, '{"name": ')

    path = tmp_path / "out.json"
    path.write_text("old")
    assert tiny("--json-schema", schema, "--max-tokens", "8", "-o", path, NORA).code == 6
    assert path.read_text() == "old"


def test_a_retry_draws_until_the_text_is_valid(fake):
    plain = ("--json-schema", LOOSE, "--formats", *LETTERS, "hi")
    tried = fake("--retries", "60", *plain, "--format", "json")
    record = valid(tried.json)
    assert (tried.code, record["valid"], record["parsed"]) == (0, True, "aaa")
    assert record["attempts"] > 1
    assert f"Valid after {record['attempts']} attempts." in tried.err
    assert fake("--retries", "60", *plain).out == tried.json["text"] + "\n"
    fake("--retries", "1", *plain).refused("(2 attempts)", code=6)

    plain = ("--json-schema", LOOSE, "--formats", *LETTERS, "--retries", "60")
    both = fake(*plain, "-n", "3", "--format", "json", "hi", "yo")
    assert both.code == 0
    assert max(attempt for record in both.json for attempt in record["attempts"]) > 1
    one = fake(*plain, "-n", "3", "--format", "json", "hi").json
    assert [both.json[0][key] for key in ("texts", "attempts")] == [one[key] for key in ("texts", "attempts")]


def test_texts_are_what_was_asked_for(fake):
    for flags, check in [
        (("--choice", "red", "--choice", "blue"), lambda text: text in ("red", "blue")),
        (("--regex", "[0-9][0-9]-[a-z]"), lambda text: len(text) == 4 and text[2] == "-"),
        (("--grammar", 'root ::= "a" | "b" root'), lambda text: text.rstrip("\n").strip("b") == "a"),
        (("--lark", 'start: "x" start | "y"'), lambda text: text.strip("x") == "y"),
    ]:
        result = fake(*flags, "hi", "--max-tokens", "200")
        assert (result.code, check(result.out.removesuffix("\n"))) == (0, True), result.err


def test_grammars_tags_and_tools_come_from_files(fake, tmp_path):
    (tmp_path / "yes.gbnf").write_text('root ::= "yes" | "no"\n')
    assert fake("--grammar", tmp_path / "yes.gbnf", "hi").out in ("yes\n", "no\n")
    fake("--grammar", tmp_path / "no.gbnf", "hi").refused("cannot be read", code=3)

    tag = {"type": "structural_tag", "format": {"type": "regex", "pattern": "[ab]c"}}
    (tmp_path / "tag.json").write_text(json.dumps(tag))
    assert fake("--structural-tag", tmp_path / "tag.json", "hi").out in ("ac\n", "bc\n")
    tool = {"name": "beep", "parameters": {"properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}}
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": tool}]))
    result = fake("--tools", tmp_path / "tools.json", "--tool-choice", "required", "--format", "json", "hi")
    (call,) = valid(result.json)["parsed"]
    assert (call["name"], call["arguments"]["n"] in (1, 2)) == ("beep", True)


def test_a_pydantic_model_judges_too(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "even_model.py").write_text(
        "from typing import Literal\nfrom pydantic import BaseModel, field_validator\n"
        "class Even(BaseModel):\n    n: Literal[1, 2, 3, 4]\n"
        "    @field_validator('n')\n    @classmethod\n"
        "    def even(cls, n):\n        assert n % 2 == 0, 'odd'\n        return n\n"
    )
    seen = set()
    for seed in range(12):
        result = fake("--pydantic", "even_model:Even", "--seed", seed, "hi")
        seen.add(result.code)
        assert result.json["n"] % 2 == 0 if result.code == 0 else "odd" in result.err
    assert seen == {0, 6}


def test_a_record_says_what_constrained_it(tiny, schema, fake):
    record = valid(tiny("--json-schema", schema, "--format", "json", NORA).json)
    assert (record["valid"], record["parsed"]["city"], record["attempts"]) == (True, "Quito", 1)
    assert (record["grammar"]["kind"], record["grammar"]["exact"]) == ("json_schema", True)
    assert "text" not in next(stage["grammar"] for stage in record["chain"] if "grammar" in stage)
    cut = tiny("--json-schema", schema, "--format", "json", "--max-tokens", "8", NORA)
    record = valid(cut.json)
    assert (cut.code, record["text"], record["valid"], record["parsed"]) == (6, None, False, None)
    assert (record["finish_reason"], record["error"]["type"]) == ("length", "InvalidOutput")

    assert "grammar: trie, compile: " in fake("--choice", "a", "--stats", "hi").err


def test_what_the_mask_leaves_open_is_said_before_the_run(fake, tiny):
    result = fake("--json-schema", LOOSE, "hi")
    assert "format at /format: not understood" in result.err
    checked = fake("--json-schema", LOOSE, "--formats", "hi")
    assert "format at /format: final check" in checked.err
    strict = fake("--json-schema", LOOSE, "--schema-strict", "--model", "nowhere", "hi")
    assert (strict.code, strict.out) == (3, "")
    assert "--schema-strict" in strict.err
    fake("--json-schema", '{"type": "null", "colour": 1}', "--schema-strict", "hi").refused(
        "colour at /colour: not understood", code=3
    )
    assert fake("--json-schema", '{"type": "null", "title": "a"}', "--schema-strict", "hi").out == "null\n"
    assert "/format" in strict.err

    assert "Notice" not in tiny("--json", NORA).err
    assert "Notice" not in tiny("--json-schema", '{"type": "object"}', NORA).err
    tiny("--json-schema", '{"type": "object"}', "--schema-strict", NORA).refused(
        "additionalProperties: false", code=3
    )


def test_a_grammar_that_takes_too_long_is_exit_3_and_names_the_limit(gencli):
    hours = HOSTILE["json_schema", "hours to compile"]()
    gencli(
        "run",
        "--model",
        "fake",
        "--json-schema",
        hours,
        "--grammar-timeout",
        "0.5",
        "hi",
        "--grammar-backend",
        "xgrammar",
    ).refused("time limit", "--grammar-timeout", code=3)


FILES = {
    "json_schema": '{"const": "yes"}',
    "grammar": 'root ::= "yes"',
    "lark": 'start: "yes"',
    "structural_tag": '{"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}}',
}


def test_a_file_that_a_preset_names_lies_beside_it_wherever_the_command_is_given(
    gencli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets").mkdir()
    for key, content in FILES.items():
        (tmp_path / "presets" / "what.json").write_text(content)
        (tmp_path / "presets" / "mine.yaml").write_text(f"{key}: what.json\n")
        said = '"yes"\n' if key == "json_schema" else "yes\n"
        assert gencli(*ALL, "--preset", "presets/mine.yaml", "hi").out == said, key
        text = gencli("config", "export", "--preset", "presets/mine.yaml", "--seed", "3").out
        (tmp_path / "copy.yaml").write_text(text)
        assert gencli("config", "export", "--preset", "./copy.yaml", "--seed", "3").out == text, key
        flag = f"--{key.replace('_', '-')}"
        assert gencli("config", "export", flag, "presets/what.json", "--seed", "3").out == text, key
