"""Structured output from the shell: a valid result and exit 0, or a reason and another code."""

import json

import pytest

from processors.testing.grammars import HOSTILE
from tests.cli.test_output import valid

TINY = ("--seed", "1")
NORA = "Sentence: Nora is a 41 year old pilot from Quito.\nJSON:"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}, "job": {"type": "string"},
        "city": {"type": "string"},
    },
    "required": ["name", "age", "job", "city"],
}  # fmt: skip
# No mask knows this format, only the check at the end does: with two letters, aaa is valid and (aa is not.
LOOSE = '{"type": "string", "format": "regex", "minLength": 3, "maxLength": 3}'
LETTERS = ("--allow-ids", "34,40,97,257")
ALL = ("run", "--model", "fake", "--seed", "1")


@pytest.fixture
def tiny(gencli):
    """Call `gencli run` on the bundled model, greedily."""
    return lambda *arguments, **kwargs: gencli("run", "-t", "0", *arguments, **kwargs)


@pytest.fixture
def fake(gencli):
    """Call `gencli run` on the fake model, which writes anything."""
    return lambda *arguments, **kwargs: gencli(*ALL, *arguments, **kwargs)


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON))
    return path


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

    result = tiny("--json-schema", schema, "--select", "/wage", NORA)
    assert (result.code, result.out) == (6, "")
    assert "no /wage" in result.err


def test_a_document_that_is_cut_is_no_result(tiny, schema, tmp_path):
    result = tiny("--json-schema", schema, "--max-tokens", "8", NORA)
    assert (result.code, result.out) == (6, "")
    assert "--max-tokens cut it" in result.err
    partial = tiny("--json-schema", schema, "--max-tokens", "8", "--partial", NORA)
    assert (partial.code, partial.out[:9]) == (6, '{"name": ')

    path = tmp_path / "out.json"
    path.write_text("old")
    assert tiny("--json-schema", schema, "--max-tokens", "8", "-o", path, NORA).code == 6
    assert path.read_text() == "old"


def test_a_document_that_the_check_refuses_is_no_result(fake):
    result = fake("--json-schema", LOOSE, "--formats", *LETTERS, "hi")
    assert (result.code, result.out) == (6, "")
    assert 'of the format "regex"' in result.err
    assert fake("--json-schema", LOOSE, *LETTERS, "hi").code == 0  # else it is a remark

    result = fake("--json-schema", LOOSE, "--formats", *LETTERS, "-n", "8", "hi")
    assert result.code == 7
    labels = [line for line in result.out.splitlines() if line.startswith("==>")]
    assert 0 < len(labels) < 8
    assert result.err.count("Error: sample") == 8 - len(labels)


def test_a_retry_draws_until_the_text_is_valid(fake):
    plain = ("--json-schema", LOOSE, "--formats", *LETTERS, "hi")
    tried = fake("--retries", "60", *plain, "--format", "json")
    record = valid(tried.json)
    assert (tried.code, record["valid"], record["parsed"]) == (0, True, "aaa")
    assert record["attempts"] > 1
    assert f"Valid after {record['attempts']} attempts." in tried.err
    assert fake("--retries", "60", *plain).out == tried.json["text"] + "\n"
    few = fake("--retries", "1", *plain)
    assert (few.code, "(2 attempts)" in few.err) == (6, True)

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
    missing = fake("--grammar", tmp_path / "no.gbnf", "hi")
    assert (missing.code, "cannot be read" in missing.err) == (3, True)

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


def test_thinking_goes_to_stderr_or_a_field(fake):
    flags = ("--constrain-after", "b", "--choice", "yes", "--choice", "no", "--allow-ids")
    ids = ",".join(map(str, b"abcdefyesno"))
    result = fake(*flags, ids, "hi", "--max-tokens", "500")
    record = valid(fake(*flags, ids, "hi", "--max-tokens", "500", "--format", "json").json)
    assert result.out in ("yes\n", "no\n")
    assert f"[thinking] {record['thinking']}" in result.err
    assert (record["text"], record["thinking"][-1]) == (result.out.strip(), "b")
    never = fake("--constrain-after", "never", "--choice", "yes", "hi", "--max-tokens", "5")
    assert (never.code, never.out, "before 'never'" in never.err) == (6, "", True)


def test_a_prompt_that_ends_the_thinking_leaves_none(fake):
    flags = ("--constrain-after", "</t>", "--choice", "yes", "--choice", "no")
    for prompt in ("<t></t>", "<t>\n\n</t>\n\n"):
        record = valid(fake(*flags, prompt, "--format", "json").json)
        assert record["text"] in ("yes", "no"), prompt
        assert record["thinking"] is None, prompt
        assert "[thinking]" not in fake(*flags, prompt).err, prompt


def test_a_budget_counts_thinking_that_only_its_end_marks(fake):
    budget = ("--reasoning-budget", "3", "--constrain-after", "</think>", "--choice", "yes")
    for prompt, thinking in [("hi", "aaa</think>"), ("<think></think>", None)]:
        record = valid(fake(*budget, "--logit-bias", "97=99", prompt, "--format", "json").json)
        assert (record["text"], record["thinking"]) == ("yes", thinking), prompt


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


def test_what_asks_for_more_than_the_grammar_has_is_told_so(fake):
    for flag in ["--min-tokens=9", "--ignore-eos"]:
        result = fake("--choice", "red", "--choice", "blue", flag, "hi")
        assert result.code == 0, flag
        assert f"{flag[2:].partition('=')[0].replace('-', '_')} did not make it longer" in result.err, flag

    stage = 'grammar:kind=choice,backend=trie,text="[\\"abcdef\\"]"'
    result = fake("--stage", stage, "--max-tokens", "3", "hi")
    assert (result.code, "--max-tokens cut it" in result.err) == (6, True)


def test_the_chain_shows_the_grammar_in_a_few_words(fake, schema, gencli):
    result = fake("--json-schema", schema, "--constrain-after", "</think>", "--show-chain")
    line = next(line for line in result.out.splitlines() if " grammar " in line)
    assert "json_schema" in line
    assert "person.json" in line or "..." in line
    assert 'after "</think>"' in line
    assert "flag --json-schema" in line
    assert "properties" not in result.out
    shown = gencli("config", "show", "--json-schema", schema)
    assert line.split()[:2] == ["constrain", "grammar"]
    assert any(row.split()[:2] == ["constrain", "grammar"] for row in shown.out.splitlines())


def test_what_the_mask_leaves_open_is_said_before_the_run(fake, tiny):
    result = fake("--json-schema", LOOSE, "hi")
    assert "format at /format: not understood" in result.err
    checked = fake("--json-schema", LOOSE, "--formats", "hi")
    assert "format at /format: final check" in checked.err
    strict = fake("--json-schema", LOOSE, "--schema-strict", "--model", "nowhere", "hi")
    assert (strict.code, strict.out) == (3, "")
    assert "--schema-strict" in strict.err
    unknown = fake("--json-schema", '{"type": "null", "colour": 1}', "--schema-strict", "hi")
    assert (unknown.code, "colour at /colour: not understood" in unknown.err) == (3, True)
    assert fake("--json-schema", '{"type": "null", "title": "a"}', "--schema-strict", "hi").out == "null\n"
    assert "/format" in strict.err

    assert "Notice" not in tiny("--json", NORA).err
    assert "Notice" not in tiny("--json-schema", '{"type": "object"}', NORA).err
    strict = tiny("--json-schema", '{"type": "object"}', "--schema-strict", NORA)
    assert (strict.code, "additionalProperties: false" in strict.err) == (3, True)


def test_what_cannot_be_used_is_exit_3_before_the_model_loads(gencli):
    for flags, said in [
        (("--json-schema", '{"type": "strin"}'), "/type"),
        (("--json-schema", '{"propertie": {"a": {}}}'), "'properties' is"),
        (
            ("--json-schema", '{"propertys": {"a": {}}}'),
            "/propertys: 'propertys' is no keyword; 'properties' is",
        ),
        (("--json-schema", '{"enum": []}'), "/enum"),
        (("--json-schema", '{"$ref": "http://far.away/x"}'), "/$ref"),
        (("--json-schema", '{"minimum": 2, "maximum": 1}'), "/minimum"),
        (("--json-schema", "nowhere.json"), "nowhere.json cannot be read"),
        (("--regex", "(a"), "regex"),
        (("--grammar", "root ::= missing"), "missing"),
        (("--grammar", "root ::= root"), "root"),
        (("--lark", "start: missing"), "missing"),
        (("--choice", ""), "empty"),
        (("--tools", "nowhere.json"), "nowhere.json cannot be read"),
        (("--structural-tag", "nowhere.json"), "nowhere.json cannot be read"),
        (("--pydantic", "no_such_module:Model"), "no_such_module"),
    ]:
        result = gencli("run", "--model", "nowhere", *flags, "hi")
        assert (result.code, result.out) == (3, ""), flags
        assert said in result.err, flags


def test_what_does_not_stand_together_is_refused_by_both_names(gencli):
    for flags in [
        ("--json", "--regex=a"),
        ("--choice=a", "--lark=start: /a/"),
        ("--json", "--stage=grammar:kind=regex,text=a"),
        ("--json", "--stream"),
        ("--parsed", "--regex=a"),
        ("--select=/a", "--choice=a"),
        ("--parsed", "--select=/a", "--json"),
        ("--parsed", "--format=json", "--json"),
        ("--formats", "--json"),
        ("--schema-strict", "--choice=a"),
        ("--extra-properties", "--regex=a"),
        ("--json-whitespace=2", "--regex=a"),
        ("--grammar-backend=xgrammar", "--choice=a"),
        ("--grammar-backend=xgrammar", "--lark=start: /a/"),
        ("--tool-choice=required", "--json"),
        ("--retries=2", "--temperature=0", "--json"),
    ]:
        result = gencli("run", *flags, "hi")
        assert (result.code, result.out) == (2, ""), flags
        names = {flag.partition("=")[0] for flag in flags}
        assert len([name for name in names if name in result.err]) >= 2, result.err

    for flag in (
        "constrain-after=x grammar-backend=xgrammar grammar-timeout=3 schema-strict extra-properties "
        "json-whitespace=2 formats partial retries=2 parsed select=/a tool-choice=required".split()
    ):
        result = gencli("run", f"--{flag}", "hi")
        assert (result.code, f"--{flag.partition('=')[0]} needs" in result.err) == (2, True), flag

    for pointer in ["a", "/a~2"]:
        result = gencli("run", "--json", "--select", pointer, "hi")
        assert (result.code, "JSON pointer" in result.err) == (2, True), pointer


def test_a_grammar_that_takes_too_long_is_exit_3_and_names_the_limit(gencli):
    hours = HOSTILE["json_schema", "hours to compile"]()
    result = gencli("run", "--model", "fake", "--json-schema", hours, "--grammar-timeout", "0.5", "hi",
                    "--grammar-backend", "xgrammar")  # fmt: skip
    assert (result.code, result.out) == (3, "")
    assert "time limit" in result.err
    assert "--grammar-timeout" in result.err


def test_a_limit_of_a_back_end_that_ends_a_text_is_named(gencli, monkeypatch):
    for backend in ["xgrammar", "llguidance"]:
        with monkeypatch.context() as patch:
            patch.setattr("processors.grammar.backends.slow_tokens.WATCHED_SECONDS", -1.0)
            patch.setattr("processors.grammar.backends.slow_tokens.MAX_STEP_SECONDS", -1.0)
            result = gencli(
                "run", "--model", "fake", "--regex", "[ab]{9}", "--grammar-backend", backend, "hi"
            )
            assert (result.code, result.out) == (6, ""), backend
            assert f"in {backend} a token took longer than the limit of -1 s" in result.err, backend


def test_a_preset_or_the_environment_may_give_structure_and_a_flag_another(
    gencli, tmp_path, monkeypatch, fake
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pick.yaml").write_text("choice: [red, blue]\nretries: 2\n")
    assert gencli(*ALL, "--preset", "./pick.yaml", "hi").out in ("red\n", "blue\n")
    assert gencli(*ALL, "--preset", "./pick.yaml", "--regex", "x[yz]", "hi").out in ("xy\n", "xz\n")
    shown = gencli("config", "export", "--preset", "./pick.yaml", "--seed", "3")
    assert 'choice: ["red", "blue"]' in shown.out
    (tmp_path / "code.yaml").write_text("pydantic: os:path\n")
    assert "flag only" in gencli(*ALL, "--preset", "./code.yaml", "hi").err

    (tmp_path / "mine.yaml").write_text("json_schema: 'name, age int'\n")
    text = gencli("config", "export", "--preset", str(tmp_path / "mine.yaml"), "--seed", "3").out
    assert 'json_schema: "name, age int"' in text

    monkeypatch.setenv("GENCLI_CHOICE", '["red", "blue"]')
    assert fake("hi").out in ("red\n", "blue\n")


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
