"""Cases of chats that the suites of other servers have: messages, formats, tools, log-probabilities."""

import json
from itertools import product

from tests.server.conftest import LETTERS, events

MESSAGES = [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]


CHAT = {"messages": MESSAGES, "seed": 1, "max_tokens": 8, "ignore_eos": True}


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


def test_tools_beside_a_schema_give_a_call_or_an_answer_of_it(tiny):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    body = {**CHAT, "max_tokens": 120, "temperature": 1.2, "tools": [TOOL], "response_format": form}
    for seed in range(6):
        (choice,) = post(tiny, **{**body, "seed": seed})["choices"]
        message = choice["message"]
        if "tool_calls" in message:
            assert (choice["finish_reason"], message["content"]) == ("tool_calls", None), seed
        else:
            assert json.loads(message["content"])["n"] <= 9, seed
        chunks = events(tiny.post("/v1/chat/completions", json={**body, "seed": seed, "stream": True}))
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert text == (message["content"] or ""), seed
    (choice,) = post(tiny, **body, tool_choice="required")["choices"]
    assert choice["message"]["tool_calls"]
