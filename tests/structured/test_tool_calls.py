"""`--tools`: calls in the model's own form, enforced, read back whole or as a stream, and checked."""

import json
import random
from functools import partial
from itertools import pairwise

import pytest

from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_errors import SchemaError
from gencli.structured.tool_calls import CallPart, CallStream, Schemas, detect_format
from gencli.structured.tool_plans import plan_tools, read_tools
from tests.structured.backends import SCHEMAS, all_accept

CITY = {"type": "object", "properties": {"city": {"$ref": "#/$defs/name"}}, "required": ["city"]}
CITY = {**CITY, "additionalProperties": False, "$defs": {"name": {"type": "string", "maxLength": 9}}}
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
COUNT = {**COUNT, "additionalProperties": False}

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "It rains", "parameters": CITY}},
    {"type": "function", "name": "add_1", "parameters": COUNT},
]

TEMPLATES = {
    "hermes": "{% if tools %}<tool_call>\n{}\n</tool_call>{% endif %}",
    "llama3": '<|start_header_id|>{"name": function name, "parameters": ...}',
    "mistral": "[TOOL_CALLS] [",
    "generic": "{{ messages }}",
}

ROME, TWO = '"weather", "arguments": {"city": "Rome"}', '"add_1", "arguments": {"n": 2}'


def hermes(*calls):
    return "\n".join(f'<tool_call>\n{{"name": {call}}}\n</tool_call>' for call in calls)


def mistral(*calls):
    return "[TOOL_CALLS] [" + ", ".join(f'{{"name": {call}}}' for call in calls) + "]"


def single(*calls):
    return "".join(f'{{"name": {call}}}' for call in calls)


def llama(*calls):
    return single(*calls).replace("arguments", "parameters")


WRITE = {"hermes": hermes, "mistral": mistral, "llama3": llama, "generic": single}


def plan(name, choice):
    return plan_tools(json.dumps(TOOLS), SCHEMAS, template=TEMPLATES[name], choice=choice)


def test_several_calls_are_read_in_their_order_with_text_between():
    tools = plan("hermes", "auto")
    text = f"First {hermes(ROME)} then {hermes(TWO)}."
    assert all(accept(text) for accept in all_accept(tools.plan))
    assert [call.name for call in tools.plan.check.calls(text)] == ["weather", "add_1"]


def test_beside_a_schema_an_output_is_calls_or_a_document():
    answer = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    for name, template in TEMPLATES.items():
        tools = plan_tools(json.dumps(TOOLS), SCHEMAS, template=template, answer=answer)
        call, document = WRITE[name](ROME), '{"name": "weather forecast"}'
        for accept in all_accept(tools.plan):
            assert [accept(text) for text in (call, document, "Hello", "")] == [True, True, False, False], (
                name
            )
        assert tools.read(call) == [{"name": "weather", "arguments": {"city": "Rome"}}], name
        assert tools.read(document) == {"name": "weather forecast"}, name
        assert tools.plan.check.faults(call) == tools.plan.check.faults(document) == (), name
        assert tools.plan.check.faults('{"name": 5}'), name
        alone = plan_tools(json.dumps(TOOLS), SCHEMAS, template=template, choice="required", answer=answer)
        assert not any(accept(document) for accept in all_accept(alone.plan)), name


def test_arguments_come_in_any_order_where_that_is_asked_for():
    names = [f"p{n}" for n in range(6)]
    parameters = {"type": "object", "properties": {key: {"type": "integer"} for key in names}}
    tools = [{"name": "count", "parameters": {**parameters, "required": names}}]
    schemas = Schemas(partial(choose, request=PlanRequest("llguidance", any_order=True)))
    found = plan_tools(json.dumps(tools), schemas, template=TEMPLATES["hermes"], choice="auto")
    (accept,) = all_accept(found.plan)
    for order in (names, names[::-1]):
        assert accept(hermes(f'"count", "arguments": {json.dumps(dict.fromkeys(order, 1))}'))
    assert not accept(hermes(f'"count", "arguments": {json.dumps(dict.fromkeys(names[1:], 1))}'))


def test_what_is_wrong_with_an_output_is_said():
    for text, fault in [
        (hermes('"weather", "arguments": {"city": "A very long name"}'), "The arguments of 'weather'"),
        (hermes('"weathr", "arguments": {}'), "no tool 'weathr'. Did you mean 'weather'?"),
        (hermes(ROME)[:-4], "After a call"),
        ("<tool_call>\nweather", "where no call begins"),
        (hermes('"add_1", "arguments": {"n": 1, "n": 2}'), "A call is no JSON"),
        ("", "There is no tool call."),
    ]:
        faults = plan("hermes", "required").plan.check.faults(text)
        assert any(fault in said for said in faults), faults


def test_the_more_exact_back_end_comes_first():
    other = {"name": "t", "parameters": {**COUNT, "not": {"const": 1}}}
    tools = plan_tools(json.dumps([other]), SCHEMAS, template=TEMPLATES["hermes"])
    (variant,) = tools.plan.variants
    assert [finding.pointer for finding in variant.audit.open] == ["/0/parameters/not"]


def test_the_format_is_read_off_the_chat_template():
    for template, special, name, notice in [
        (None, (), "generic", "names no format"),
        ("<tool_call><function=x>", (), "generic", "Qwen3-Coder's XML"),
        ("<｜tool▁calls▁begin｜>", (), "generic", "DeepSeek's"),
        ("[TOOL_CALLS]x[ARGS]", (), "generic", "Mistral's with"),
        ("[TOOL_CALLS]", ("[TOOL_CALLS]",), "generic", "is a special token"),
        ("<tool_call>", ("<|im_end|>",), "hermes", ""),
        ("<|python_tag|>", (), "llama3", ""),
    ]:
        form, said = detect_format(template, frozenset(special))
        assert form.name == name, template
        assert notice in said, template
        assert bool(said) == bool(notice), template


def test_a_wrong_list_of_tools_is_refused():
    for tools, pointer, message in [
        ("{", "", "no JSON document"),
        ([], "", "at least one tool"),
        ([1], "/0", 'type "function"'),
        ([{"type": "web_search"}], "/0", 'type "function"'),
        ([{"name": "a b"}], "/0/name", "'a b'"),
        ([{"name": "a", "params": {}}], "/0", "no field 'params'"),
        ([{"name": "a", "parameters": {"type": "string"}}], "/0/parameters", "schema of an object"),
        ([{"name": "a", "parameters": {"required": 1}}], "/0/parameters/required", "array"),
        ([{"name": "a"}, {"function": {"name": "a"}}], "/1/function/parameters", "two tools 'a'"),
    ]:
        text = tools if isinstance(tools, str) else json.dumps(tools)
        with pytest.raises(SchemaError, match=message) as failure:
            read_tools(text)
        assert failure.value.pointer == pointer, tools


def test_only_a_tool_of_the_list_can_be_chosen():
    with pytest.raises(SchemaError, match="no tool 'weathr' to choose"):
        plan("hermes", "weathr")


ARGUMENTS = '{"a": "q\\"}, \\\\", "b": [{}, {"name": "x"}], "é": "\\ud83d\\ude00 😀 </tool_call>"}'
NESTED = f'"deep.f-1", "arguments": {ARGUMENTS}'
EMPTY = '"g", "arguments": {}'
FORMS = {name: detect_format(template)[0] for name, template in TEMPLATES.items()}


def read(form, pieces, **options):
    """The free text, and the name and arguments of each call."""
    stream = CallStream(form, **options)
    found = [*map(stream.feed, pieces), stream.finish()]
    calls = []
    for part in (part for one in found for part in one.calls):
        if part.name:
            assert part == CallPart(len(calls), part.name)
            calls.append((part.name, ""))
        else:
            assert part.arguments
            assert part.number == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + part.arguments)
    assert stream.count == len(calls)
    return "".join(one.text for one in found), calls


def test_a_call_that_is_cut_has_the_arguments_so_far():
    for name in WRITE:
        form, text = FORMS[name], WRITE[name](NESTED)
        for length in range(len(text)):
            free, calls = read(form, list(text[:length]), has_only_calls=True)
            if calls:
                assert (free, calls[0][0]) == ("", "deep.f-1"), name
                assert ARGUMENTS.startswith(calls[0][1]), name
            else:  # before its name it is neither a call nor text
                assert free == "", name


def test_white_space_and_the_order_of_members_are_free_in_plain_json():
    text = ' {"arguments" :{"a":1 } , "name": "f"} '
    assert read(FORMS["generic"], list(text), has_only_calls=True) == ("", [("f", '{"a":1 }')])


def test_only_the_first_call_counts_where_one_is_asked_for():
    text = WRITE["hermes"](EMPTY, NESTED)
    for pieces in ([text], list(text)):
        assert read(FORMS["hermes"], pieces, has_one=True) == ("", [("g", "{}")])


def test_what_is_no_call_is_text():
    for text in ["<tool_call> x", '<tool_call>{"n": 1}', '<tool_call>{"name": 5}']:
        for pieces in ([text], list(text), [text, " more"]):
            assert read(FORMS["hermes"], pieces) == ("".join(pieces), []), text


def test_any_text_is_read_alike_however_it_is_cut():
    draw = random.Random(1)
    words = [*'{}[]":,\\ \nx', "<tool_call>", '"name"', '"arguments"', '{"name": "', '", "arguments": ']
    for _ in range(500):
        text = "".join(draw.choices([*words, "[TOOL_CALLS]"], k=draw.randint(1, 25)))
        form, options = draw.choice([*FORMS.values()]), {"has_only_calls": draw.random() < 0.5}
        places = [0, *sorted(draw.choices(range(len(text) + 1), k=4)), len(text)]
        pieces = [text[a:b] for a, b in pairwise(places)]
        assert read(form, pieces, **options) == read(form, [text], **options), pieces
