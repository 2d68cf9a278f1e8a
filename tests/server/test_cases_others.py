"""Cases of responses, tokens, keys and limits that the suites of other servers have."""

import json

ASK = {"input": "Write an example", "max_output_tokens": 30, "seed": 1}


SCHEMA = {"type": "json_schema", "name": "test", "schema": {"const": "foooooo"}}


def streamed(client, **body):
    reply = client.post("/v1/responses", json={**ASK, **body, "stream": True})
    assert reply.status_code == 200, reply.text
    return [json.loads(block.split("data: ", 1)[1]) for block in reply.text.split("\n\n")[:-1]]


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
        {"response_format": {"type": "json_object"}, "text": {"format": SCHEMA}},
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
        tiny, input=[{"role": "system", "content": "Book"}, {"role": "user", "content": "Which?"}]
    )
    responses = {event["response"]["id"] for event in found if "response" in event}
    messages = {event["item_id"] for event in found if "item_id" in event}
    items = {event["item"]["id"] for event in found if "item" in event}
    assert (len(responses), len(messages), items) == (1, 1, messages)
    deltas = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == deltas


def test_tokens_are_the_text(tiny):
    for text in ["What is the capital of France ?", "媽 and 🤗", "a\n\tb", ""]:
        ids = tiny.post("/tokenize", json={"content": text}).json()["tokens"]
        assert tiny.post("/detokenize", json={"tokens": ids}).json()["content"] == text, text
        pieces = tiny.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
        assert [piece["id"] for piece in pieces] == ids, text


def test_a_beginning_of_text_is_added_if_asked_for(tiny):
    plain, special = (
        tiny.post("/tokenize", json={"content": "a", "add_special": added}).json()["tokens"]
        for added in (False, True)
    )
    assert special == [special[0], *plain]
    bos = tiny.get("/tokenizer_info").json()["bos_token"]
    assert tiny.post("/detokenize", json={"tokens": special[:1]}).json()["prompt"] == bos
    assert tiny.post("/tokenize", json={"prompt": "a"}).json()["tokens"] == special
    assert tiny.post("/tokenize", json={"prompt": "a", "add_special_tokens": False}).json()["tokens"] == plain


def test_values_are_checked(fake):
    cases = [
        ({"temperature": 999_999}, None), ({"top_p": -1}, "top_p"), ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"min_p": 2}, "min_p"), ({"top_k": 1.5}, "top_k"), ({"n": 16_384}, "n"),
        ({"best_of": 1, "n": 2}, "n"), ({"stop": ["x"] * 200}, "stop"),
        ({"frequency_penalty": "much"}, "frequency_penalty"), ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**70}, "seed"), ({"min_tokens": 9, "max_tokens": 4}, None),
        ({"logit_bias": {"97": 1e9}}, None), ({"prompt": "\u0000"}, None),
    ]  # fmt: skip
    for body, param in cases:
        reply = fake.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, **body})
        if param is None:
            assert reply.status_code in (200, 400), body
        else:
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body
        assert fake.get("/health").status_code == 200, body
