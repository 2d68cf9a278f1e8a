"""/v1/responses: the answer of chat completions in the form of responses, whole and as events."""

import json

from gencli.server.wire_calls import chat_body
from tests.server.conftest import LETTERS

BODY = {"input": "hi", "seed": 3, "max_output_tokens": 12, "allow_ids": LETTERS}


def streamed(client, body):
    reply = client.post("/v1/responses", json={**body, "stream": True})
    assert reply.status_code == 200, reply.text
    found = []
    for block in reply.text.split("\n\n")[:-1]:
        kind, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {found[-1]['type']}"
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_the_text_is_that_of_a_chat(fake):
    response = fake.post("/v1/responses", json=BODY).json()
    chat = {
        "messages": [{"role": "user", "content": "hi"}], "seed": 3, "max_tokens": 12, "allow_ids": LETTERS,
    }  # fmt: skip
    text = fake.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
    (item,) = response["output"]
    assert item["content"][0]["text"] == text
    assert (response["object"], response["status"]) == ("response", "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] == 12


def test_a_stream_ends_with_the_whole_response(fake):
    found = streamed(fake, BODY)
    kinds = [event["type"] for event in found]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    text = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    whole = fake.post("/v1/responses", json=BODY).json()
    last = found[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert whole["output"][0]["content"][0]["text"] == text


def test_a_call_is_an_item(tiny, fake):
    parameters = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    body = {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Add."}]}], "seed": 1,
        "tools": [{"type": "function", "name": "add", "parameters": parameters}], "tool_choice": "required",
        "parallel_tool_calls": False,
    }  # fmt: skip
    found = streamed(tiny, body)
    (call,) = found[-1]["response"]["output"]
    assert (call["type"], call["name"]) == ("function_call", "add")
    assert json.loads(call["arguments"])["a"] in (1, 2)
    deltas = [one["delta"] for one in found if one["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call["arguments"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    again = {"input": [*body["input"], call, result], "max_output_tokens": 2}
    assert fake.post("/v1/responses", json=again).status_code == 200


def test_items_become_messages():
    made = chat_body({
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": "a"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
        ],
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"},
        "store": False,
    })  # fmt: skip
    assert [message["role"] for message in made["messages"]] == ["system", "user", "assistant", "tool"]
    assert [call["id"] for call in made["messages"][2]["tool_calls"]] == ["c1", "c2"]
    schema = {"schema": {"type": "object"}}
    assert made["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert made["reasoning"] == {"effort": "low"}


def test_what_has_no_form_here_is_refused(fake):
    cases = [
        ({}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "image"}]}, "input[0]"),
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "a", "background": True}, "background"),
    ]
    for body, param in cases:
        reply = fake.post("/v1/responses", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body


def test_log_probabilities_of_a_response_are_those_of_a_chat(fake):
    asked = {"top_logprobs": 2, "include": ["message.output_text.logprobs", "reasoning.encrypted_content"]}
    found = streamed(fake, {**BODY, **asked})
    parts = [event for event in found if event["type"] == "response.output_text.delta"]
    (item,) = found[-1]["response"]["output"]
    chat = {"messages": [{"role": "user", "content": "hi"}], "seed": 3, "max_tokens": 12,
            "allow_ids": LETTERS, "logprobs": True, "top_logprobs": 2}  # fmt: skip
    (choice,) = fake.post("/v1/chat/completions", json=chat).json()["choices"]
    assert item["content"][0]["logprobs"] == choice["logprobs"]["content"]
    assert [entry for part in parts for entry in part["logprobs"]] == choice["logprobs"]["content"]


ASK = {"input": "Write an example", "max_output_tokens": 30, "seed": 1}
FOO = {"type": "json_schema", "name": "test", "schema": {"const": "foooooo"}}


def test_a_wrong_response_is_refused(tiny):
    cases = [
        {"text": {"format": {"type": "json_schema", "name": "test"}}},
        {"text": {"format": {"type": "sound"}}},
        {"text": 5},
        {"input": []},
        {"input": [{"role": "king", "content": "x"}]},
        {"input": [{"type": "function_call_output", "output": "x"}]},
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]},
        {"max_output_tokens": 0},
        {"max_tokens": 5},
        {"response_format": {"type": "json_object"}, "text": {"format": FOO}},
        {"tools": [{"type": "function"}]},
        {"tool_choice": {"type": "function", "name": "f"}},
        {"messages": [{"role": "user", "content": "other"}]},
        {"top_kk": 1},
    ]
    for given in cases:
        reply = tiny.post("/v1/responses", json={**ASK, **given})
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), given


def test_the_events_of_a_response_name_one_message(tiny):
    found = streamed(
        tiny, {**ASK, "input": [{"role": "system", "content": "Book"}, {"role": "user", "content": "Which?"}]}
    )
    responses = {event["response"]["id"] for event in found if "response" in event}
    messages = {event["item_id"] for event in found if "item_id" in event}
    items = {event["item"]["id"] for event in found if "item" in event}
    assert (len(responses), len(messages), items) == (1, 1, messages)
    deltas = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == deltas
