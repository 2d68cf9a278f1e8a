"""Cases of chats that the suites of other servers have: messages, formats, tools, log-probabilities."""

import json
from itertools import product

from tests.server.conftest import LETTERS, events

MESSAGES = [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]
CHAT = {"messages": MESSAGES, "seed": 1, "max_tokens": 8, "ignore_eos": True}
PARTS = [{"type": "text", "text": "What is "}, {"type": "text", "text": "the best book"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def post(client, **body):
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refusal(client, **body):
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def content(client, **body):
    return post(client, **body)["choices"][0]["message"]["content"]


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
        ended, ignored = (post(tiny, **body, **{name: value}) for value in (False, True))
        assert ended["choices"][0]["finish_reason"] == "stop", name
        assert ignored["usage"]["completion_tokens"] == 40 > ended["usage"]["completion_tokens"], name


def test_wrong_messages_are_refused(tiny):
    wrong = [
        None, "string", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}],
        [{"content": "hello"}], [{"role": "user"}], [MESSAGES[0], {}], {"role": "user"},
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [5]}],
        [{"role": "user", "content": "\ud800"}],
    ]  # fmt: skip
    for messages, stream in product(wrong, [False, True]):
        body = json.dumps({"messages": messages, "stream": stream}).encode()
        reply = tiny.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400, messages
        assert reply.json()["error"]["type"] == "invalid_request_error", messages


def test_a_template_that_refuses_names_no_folder(tiny):
    error = refusal(tiny, messages=[*MESSAGES, {"role": "tool", "tool_call_id": "c", "content": "1"}])
    assert "The chat template of tiny failed" in error["message"]
    assert "/" not in error["message"]


def test_a_conversation_beyond_the_context_is_refused_before_a_stream(tiny):
    for stream in [False, True]:
        error = refusal(tiny, messages=MESSAGES * 200, stream=stream)
        assert error["code"] == "context_length_exceeded", stream


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


def test_a_wrong_format_is_refused(tiny):
    cases = [
        {"type": "sound"}, {}, "json", {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}},
        {"type": "json_object", "schema": 123}, {"type": "json_object", "schema": {"type": 123}},
        {"type": "json_object", "schema": {"type": "hiccup"}},
        {"type": "json_schema", "json_schema": {"schema": {"properties": {"foo": "bar"}}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/none"}}},
    ]  # fmt: skip
    for form in cases:
        assert refusal(tiny, **CHAT, response_format=form)["param"].startswith("response_format"), form


def test_structures_of_other_servers_hold_for_each_sample(tiny):
    cases = [
        ("json_schema", {"const": "42"}, ['"42"']),
        ("grammar", 'root ::= "a"{5,5}', ["aaaaa"]),
        ("guided_regex", "b{2}", ["bb"]),
        ("structured_outputs", {"choice": ["cats", "dogs"]}, ["cats", "dogs"]),
        ("guided_json", '{"const": 1}', ["1"]),
    ]
    for (field, value, expected), samples in product(cases, [1, 3]):
        choices = post(tiny, **{**CHAT, "max_tokens": 30}, n=samples, **{field: value})["choices"]
        assert len(choices) == samples, (samples, field)
        assert {choice["message"]["content"] for choice in choices} <= set(expected), (samples, field)


def test_a_wrong_structure_is_refused_and_the_server_goes_on(tiny):
    cases = [
        {"regex": "[.*"}, {"grammar": "root ::= select_invalid\n\nother ::= 'x"}, {"json": {"type": "car"}},
        {"choice": []}, {"json": "{"}, {"regex": "a", "choice": ["b"]}, {"nothing": 1}, "regex",
    ]  # fmt: skip
    for structure in cases:
        assert refusal(tiny, **CHAT, structured_outputs=structure)["message"], structure
        assert content(tiny, **CHAT), structure


def test_log_probabilities_join_to_the_text(tiny):
    for stream in [False, True]:
        body = {**CHAT, "temperature": 0, "max_tokens": 5, "logprobs": True, "top_logprobs": 10}
        if stream:
            chunks = events(tiny.post("/v1/chat/completions", json={**body, "stream": True}))
            parts = [choice for chunk in chunks for choice in chunk["choices"]]
            text = "".join(part["delta"].get("content", "") for part in parts)
            entries = [entry for part in parts if part["logprobs"] for entry in part["logprobs"]["content"]]
            assert parts[-1]["delta"] == {}, stream
        else:
            (choice,) = post(tiny, **body)["choices"]
            text, entries = choice["message"]["content"], choice["logprobs"]["content"]
        assert "".join(entry["token"] for entry in entries).startswith(text), stream
        for entry in entries:
            assert len(entry["top_logprobs"]) == 10, stream
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"] <= 0, stream
            assert bytes(entry["bytes"]).decode() == entry["token"], stream
    entries = post(tiny, **CHAT, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in entries] == [[]] * 8


def test_a_bias_by_ids_leaves_words_out(tiny):
    free = content(tiny, **{**CHAT, "temperature": 0, "max_tokens": 40})
    word = free.split()[0]
    ids = tiny.post("/tokenize", json={"content": f"{word} {word}"}).json()["tokens"]
    bias = dict.fromkeys(map(str, ids), -100)
    found = content(tiny, **{**CHAT, "temperature": 0, "max_tokens": 40}, logit_bias=bias)
    assert found
    assert word not in found.split()


def test_every_sample_of_a_stream_has_its_role_and_its_end(fake):
    body = {**CHAT, "n": 3, "allow_ids": LETTERS, "stream": True}
    chunks = events(fake.post("/v1/chat/completions", json=body))
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    for index in range(3):
        own = [part for part in parts if part["index"] == index]
        assert [part["delta"].get("role") for part in own] == ["assistant"] + [None] * (len(own) - 1)
        assert [part["finish_reason"] for part in own] == [None] * (len(own) - 1) + ["length"]
        assert len("".join(part["delta"].get("content", "") for part in own)) == 8


def test_wrong_tools_are_refused(tiny):
    cases = [
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL, TOOL], "tool_choice": "required"}, "tools"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ]
    for body, param in cases:
        assert refusal(tiny, **CHAT, **body)["param"].startswith(param), body


def test_a_tool_call_that_is_cut_is_no_call(tiny):
    for stream in [False, True]:
        body = {**CHAT, "max_tokens": 3, "tools": [TOOL], "tool_choice": "required", "stream": stream}
        if stream:
            chunks = events(tiny.post("/v1/chat/completions", json=body))
            parts = [choice for chunk in chunks for choice in chunk["choices"]]
            assert not any("tool_calls" in part["delta"] for part in parts), stream
            assert not any(part["delta"].get("content") for part in parts), stream
            assert parts[-1]["finish_reason"] == "length", stream
        else:
            (choice,) = post(tiny, **body)["choices"]
            assert "tool_calls" not in choice["message"], stream
            assert not choice["message"]["content"], stream
            assert choice["finish_reason"] == "length", stream
