"""`schema_in_prompt` and the tags of thinking: what applies, and what is refused by name."""

import json

import pytest

from gencli.config.job import make_job, notices
from gencli.config.settings import FLAG, SettingsLayer, resolve
from gencli.errors import UsageError
from gencli.templates.chat_templates import NOTHING

SCHEMA = '{"type": "object", "properties": {"né": {"type": "string", "description": "{tools}"}}}'
TOOL = {
    "type": "function",
    "function": {
        "name": "beep",
        "description": "It beeps.",
        "parameters": {"properties": {"n": {"type": "integer"}}},
        "strict": True,
    },
}
TOOLS = json.dumps([TOOL, {"name": "quit"}])
LISTED = (
    '{"name": "beep", "description": "It beeps.", "parameters": {"properties": {"n": {"type": "integer"}}}}\n'
    '{"name": "quit"}'
)
CALL = '{"name": "<function-name>", "arguments": <arguments-as-JSON>}'


def job(shown=None, **values):
    wanted = {} if shown is None else {"schema_in_prompt": shown}
    return make_job(resolve((FLAG, {"model": "fake", **wanted, **values})))


def told(shown=None, **values):
    return job(shown, **values).instructions


def test_a_schema_is_shown_as_it_was_given_if_that_is_asked_for():
    for off in (None, "auto", "off"):
        assert told(off, json_schema=SCHEMA) == NOTHING, off
    assert told("Fill in {schema}!", json_schema=SCHEMA).before == f"Fill in {SCHEMA}!\n\n"
    assert SCHEMA in told("on", json_schema=SCHEMA).text
    assert told("{schema}", json=True).text == '{"type": "object"}'
    concise = told("{schema}", json_schema="name, age int")
    assert json.loads(concise.text)["required"] == ["name", "age"]
    braces = told('{"a": {x}} {schema}', json_schema=SCHEMA)
    assert braces.text == '{"a": {x}} ' + SCHEMA


def test_choices_are_shown_in_lines():
    assert told("{choices}", choice=("red", "green")).text == "red\ngreen"
    assert told("on", choice=("red", "green")).text.endswith(":\nred\ngreen")
    assert told(None, choice=("red", "green")) == NOTHING


def test_tools_are_shown_with_the_form_of_a_call_that_the_mask_enforces():
    auto = told(None, tools=TOOLS)
    assert (auto.text, auto.before) == ("", "")
    assert LISTED in auto.tools_text
    assert CALL in auto.tools_text
    on = told("on", tools=TOOLS)
    assert (on.text, on.before) == ("", f"{auto.tools_text}\n\n")
    off = told("off", tools=TOOLS)
    assert (off.text, off.tools_text, off.tools) == ("", "", auto.tools)
    own = told("Use {tools} so: {call}", tools=TOOLS)
    assert (own.text, own.tools_text) == (f"Use {LISTED} so: {CALL}", "")


def test_tools_beside_a_schema_are_shown_with_it_or_alone():
    values = {"tools": TOOLS, "json_schema": SCHEMA}
    assert told(None, **values).text == ""
    on = told("on", **values)
    assert SCHEMA in on.text
    assert LISTED in on.tools_text
    assert told("{schema}", **values).tools_text == told(None, **values).tools_text
    assert told("{tools} {schema}", **values).text == f"{LISTED} {SCHEMA}"


def test_an_unfit_text_is_refused_by_name():
    for text, values, words in [
        ("x", {"json": True}, "a text without {schema}"),
        ("", {"json": True}, "a text without {schema}"),
        ("{call}", {"tools": TOOLS}, "a text without {tools}"),
        ("{schema} {schema}", {"json": True}, "has {schema} twice"),
        ("{schema} {tools}", {"json": True}, "has {tools}, but the output has none"),
        ("{schema} {call}", {"json": True}, "has {call}, but the output has none"),
        ("{schema}", {"choice": ("a",)}, "has {schema}, but the output has none"),
        ("x", {}, "a text without {schema}"),
        ("x", {"regex": "a"}, "a text without {schema}"),
        ("on", {"regex": "a"}, "not `regex`"),
        ("off", {"grammar": 'root ::= "a"'}, "not `grammar`"),
        ("{schema}", {"lark": 'start: "a"'}, "not `lark`"),
    ]:
        with pytest.raises(UsageError, match="`schema_in_prompt`") as caught:
            told(text, **values)
        assert words in caught.value.message, (text, caught.value.message)


def test_a_default_goes_with_any_structure_and_with_none():
    default = SettingsLayer.of("preset", {"schema_in_prompt": "on"}, {"schema_in_prompt": "p.yaml:1"})
    assert make_job(resolve(default, (FLAG, {"model": "fake", "regex": "a"}))).instructions == NOTHING
    assert make_job(resolve(default, (FLAG, {"model": "fake"}))).instructions == NOTHING
    (text,) = notices(job("on"), ["hi"])
    assert text == "`schema_in_prompt` has nothing to show: the output has no structure."


def tags(**values):
    settings = resolve(("flag", {"model": "fake", **values}))
    budget = make_job(settings).assembly.chain.get("reasoning_budget")
    return budget.start, budget.end


def test_the_tags_are_those_of_the_options_else_of_the_template_else_the_usual_ones(tmp_path):
    assert tags(reasoning_budget=5) == ("<think>", "</think>")

    found = tags(reasoning_budget=5, constrain_after="[/THINK]", regex="a+")
    assert found == ("[THINK]", "[/THINK]")

    stage = 'reasoning_budget:tokens=5,end="</thought>"'
    assert tags(stage=[stage]) == ("<thought>", "</thought>")

    (tmp_path / "config.json").write_text("{}")
    template = "{{ messages }}<seed:think>{{ thought }}</seed:think>"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert tags(reasoning_budget=5, model=str(tmp_path)) == ("<seed:think>", "</seed:think>")


def test_what_could_not_act_is_refused():
    for values, message in [
        ({"reasoning_message": "x"}, "reasoning_message` is given, but there is no budget"),
        ({"reasoning_budget": 5, "constrain_after": "FINAL:", "regex": "a"}, "other half is not known"),
    ]:
        with pytest.raises(UsageError, match=message):
            tags(**values)
