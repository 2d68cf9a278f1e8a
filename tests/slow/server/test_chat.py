"""/v1/chat/completions and /v1/responses in cases that the suites of other servers have."""

import json
from itertools import product

from tests.server.conftest import post, refusal
from tests.server.test_chat import CHAT, MESSAGES, TOOL, content
from tests.server.test_responses import ASK, FOO

PARTS = [{"type": "text", "text": "What is "}, {"type": "text", "text": "the best book"}]


def test_what_clients_add_changes_nothing(tiny):
    cases = [
        {"messages": [MESSAGES[0], {"role": "user", "content": PARTS}]},
        {"messages": [{**message, "id": "m1", "name": None} for message in MESSAGES]},
        {"user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"stop": [], "logit_bias": {}, "chat_template_kwargs": {}, "stages": {}, "documents": []},
    ]
    for more in cases:
        assert content(tiny, **{**CHAT, **more}) == content(tiny, **CHAT), more


def test_an_end_can_be_ignored(tiny):
    for name in ["ignore_eos", "ban_eos_token"]:
        body = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0, "max_tokens": 40}
        ended, ignored = (post(tiny, "chat/completions", **body, **{name: value}) for value in (False, True))
        assert ended["choices"][0]["finish_reason"] == "stop", name
        assert ignored["usage"]["completion_tokens"] == 40 > ended["usage"]["completion_tokens"], name


def test_a_format_holds(tiny):
    cases = [
        ({"type": "json_object", "schema": {"const": "42"}}, '"42"'),
        ({"type": "json_schema", "json_schema": {"schema": {"const": "foooooo"}}}, '"foooooo"'),
        ({"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"enum": [7]}}}, "7"),
        ({"type": "json_object", "schema": {"type": "array", "items": {"enum": [1]}, "minItems": 2,
                                            "maxItems": 2}}, [1, 1]),
    ]  # fmt: skip
    for form, expected in cases:
        text = content(tiny, **{**CHAT, "max_tokens": 60}, response_format=form)
        assert (text if isinstance(expected, str) else json.loads(text)) == expected, form


def test_structures_of_other_servers_hold_for_each_sample(tiny):
    cases = [
        ("json_schema", {"const": "42"}, ['"42"']),
        ("grammar", 'root ::= "a"{5,5}', ["aaaaa"]),
        ("guided_regex", "b{2}", ["bb"]),
        ("structured_outputs", {"choice": ["cats", "dogs"]}, ["cats", "dogs"]),
        ("guided_json", '{"const": 1}', ["1"]),
    ]
    for (field, value, expected), samples in product(cases, [1, 3]):
        choices = post(tiny, "chat/completions", **{**CHAT, "max_tokens": 30}, n=samples, **{field: value})[
            "choices"
        ]
        assert len(choices) == samples, (samples, field)
        assert {choice["message"]["content"] for choice in choices} <= set(expected), (samples, field)


def test_a_wrong_structure_is_refused_and_the_server_goes_on(tiny):
    cases = [
        {"regex": "[.*"}, {"grammar": "root ::= select_invalid\n\nother ::= 'x"}, {"json": {"type": "car"}},
        {"choice": []}, {"json": "{"}, {"regex": "a", "choice": ["b"]}, {"nothing": 1}, "regex",
    ]  # fmt: skip
    for structure in cases:
        assert refusal(tiny, "chat/completions", **CHAT, structured_outputs=structure)["message"], structure
        assert content(tiny, **CHAT), structure


def test_a_bias_by_ids_leaves_words_out(tiny):
    free = content(tiny, **{**CHAT, "temperature": 0, "max_tokens": 40})
    word = free.split()[0]
    ids = tiny.post("/tokenize", json={"content": f"{word} {word}"}).json()["tokens"]
    bias = dict.fromkeys(map(str, ids), -100)
    found = content(tiny, **{**CHAT, "temperature": 0, "max_tokens": 40}, logit_bias=bias)
    assert found
    assert word not in found.split()


def test_the_format_of_a_response(tiny):
    for form, text in [(FOO, '"foooooo"'), ({"type": "text"}, None), (None, None)]:
        body = tiny.post("/v1/responses", json={**ASK, "text": {"format": form} if form else {}}).json()
        (item,) = body["output"]
        assert text is None or item["content"][0]["text"] == text, form
        assert body["id"].startswith("resp_"), form
        assert item["id"].startswith("msg_"), form
