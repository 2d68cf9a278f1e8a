"""Structured output from the shell: a valid result and exit 0, or a reason and another code."""

import json

import pytest

from tests.cli.test_result_writers import valid

TINY = ("--seed", "1")

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
def fake(gencli):
    """Call `gencli run` on the fake model, which writes anything."""
    return lambda *arguments, **kwargs: gencli(*ALL, *arguments, **kwargs)


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON))
    return path


def test_a_document_that_the_check_refuses_is_no_result(fake):
    fake("--json-schema", LOOSE, "--formats", *LETTERS, "hi").refused('of the format "regex"', code=6)
    assert fake("--json-schema", LOOSE, *LETTERS, "hi").code == 0  # else it is a remark

    result = fake("--json-schema", LOOSE, "--formats", *LETTERS, "-n", "8", "hi")
    assert result.code == 7
    labels = [line for line in result.out.splitlines() if line.startswith("==>")]
    assert 0 < len(labels) < 8
    assert result.err.count("Error: sample") == 8 - len(labels)


def test_thinking_goes_to_stderr_or_a_field(fake):
    flags = ("--constrain-after", "b", "--choice", "yes", "--choice", "no", "--allow-ids")
    ids = ",".join(map(str, b"abcdefyesno"))
    result = fake(*flags, ids, "hi", "--max-tokens", "500")
    record = valid(fake(*flags, ids, "hi", "--max-tokens", "500", "--format", "json").json)
    assert result.out in ("yes\n", "no\n")
    assert f"[thinking] {record['thinking']}" in result.err
    assert (record["text"], record["thinking"][-1]) == (result.out.strip(), "b")
    fake("--constrain-after", "never", "--choice", "yes", "hi", "--max-tokens", "5").refused(
        "before 'never'", code=6
    )


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
        gencli("run", "--model", "nowhere", *flags, "hi").refused(said, code=3)


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
        gencli("run", f"--{flag}", "hi").refused(f"--{flag.partition('=')[0]} needs")

    for pointer in ["a", "/a~2"]:
        gencli("run", "--json", "--select", pointer, "hi").refused("JSON pointer")


def test_a_limit_of_a_back_end_that_ends_a_text_is_named(gencli, monkeypatch):
    for backend in ["xgrammar", "llguidance"]:
        with monkeypatch.context() as patch:
            patch.setattr("processors.grammar.compile_guards.WATCHED_SECONDS", -1.0)
            patch.setattr("processors.grammar.compile_guards.MAX_STEP_SECONDS", -1.0)
            gencli(
                "run", "--model", "fake", "--regex", "[ab]{9}", "--grammar-backend", backend, "hi"
            ).refused(f"in {backend} a token took longer than the limit of -1 s", code=6)


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


LEFT_OUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "object", "enum": ["x"]}},
}
OLDER = {"$ref": "#/$defs/a", "$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}


def test_remarks_stand_behind_the_table_in_the_json_and_are_told_by_a_run(gencli):
    for schema, part in [
        (LEFT_OUT, "/properties/b/enum: no value has all the types that are asked for"),
        (OLDER, "All of the schema is read as draft 2020-12"),
    ]:
        text = gencli("schema", "audit", json.dumps(schema))
        assert (text.code, text.err) == (0, ""), schema
        assert part in text.out, schema
        assert text.out.endswith(".\n"), schema
        (remark,) = json.loads(gencli("schema", "audit", json.dumps(schema), "--format", "json").out)[
            "remarks"
        ]
        assert part in remark, schema

    result = gencli("run", "-m", "fake", "--json-schema", json.dumps(LEFT_OUT), "x", "--max-tokens", "99")
    assert "/properties/b/enum: no value has all the types" in result.err


def test_keys_that_look_like_remarks_are_told_and_misspelled_constraints_refused(gencli):
    for key in ["readonly", "decription", "$default", "Id"]:
        result = gencli("schema", "audit", json.dumps({"type": "string", key: "a"}))
        assert result.code == 0, key
        assert f"/{key}" in result.out, key
        assert "not understood" in result.out, key

    gencli("schema", "audit", json.dumps({"type": "string", "maxlength": 3})).refused(
        "/maxlength: 'maxlength' is no keyword; 'maxLength' is", "'x-maxlength'", code=3
    )


TWO = {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"enum": [2]}}, "required": ["a", "b"]}


def test_an_audit_knows_the_order_of_properties(gencli):
    texts = [
        gencli("schema", "audit", json.dumps(TWO), "--property-order", order).out
        for order in ("schema", "any")
    ]
    assert ["each order of the properties" in text for text in texts] == [False, True]

    gencli("run", "-m", "fake", "--property-order", "any", "x").refused("--property-order needs")
