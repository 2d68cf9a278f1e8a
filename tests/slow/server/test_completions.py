"""/v1/completions and /v1/chat/completions through HTTP: the texts of the library, streamed or not."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from tests.server.conftest import events
from tests.server.test_completions import TEXT, llm, post


def test_structures_hold(tiny):
    cases = [
        ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
        ({"guided_choice": ["red", "green"]}, lambda text: text in ("red", "green")),
        ({"regex": "[0-9]{3}"}, lambda text: len(text) == 3 and text.isdecimal()),
        ({"grammar": 'root ::= "a"{5,5}'}, lambda text: text == "aaaaa"),
    ]  # fmt: skip
    for (fields, check), stream in product(cases, [False, True]):
        body = {"prompt": "JSON: ", "max_tokens": 200, "seed": 1, **fields}
        if stream:
            chunks = events(tiny.post("/v1/completions", json={**body, "stream": True}))
            choice = {"text": "".join(chunk["choices"][0]["text"] for chunk in chunks)}
            assert chunks[-1]["choices"][0]["finish_reason"] == "stop", (stream, fields)
        else:
            (choice,) = post(tiny, "completions", **body)["choices"]
            assert choice["finish_reason"] == "stop", (stream, fields)
        assert check(choice["text"]), (stream, fields)


def test_neighbours_change_no_text(tiny, llm):
    def ask(number):
        body = {**TEXT, "seed": number, "prompt": f"Story {number}:", "n": 1 + number % 2}
        return [choice["text"] for choice in post(tiny, "completions", **body)["choices"]]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    alone = [
        llm.generate(f"Story {number}:", seed=number, n=1 + number % 2, max_tokens=20,
                     temperature=0.8, top_p=0.9).texts
        for number in range(8)
    ]  # fmt: skip
    assert together == alone


def test_the_text_is_that_of_the_library(tiny, llm):
    expected = llm.generate(TEXT["prompt"], seed=7, max_tokens=20, temperature=0.8, top_p=0.9)
    body = post(tiny, "completions", **TEXT)
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == (expected.text, "length")
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    sample = expected.samples[0]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (sample.prompt_tokens, 20)
    assert body["usage"]["total_tokens"] == sample.prompt_tokens + 20


FUNCTION = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["a"],
        "additionalProperties": False,
    },
}


NAMED = {"type": "function", "function": {"name": "add"}}


def test_a_tool_call_is_an_object_of_the_message(tiny):
    cases = [
        ({"tool_choice": "required"}, "tool_calls"),
        ({"tool_choice": NAMED}, "stop"),
        ({"tool_choice": NAMED, "n": 2, "draft": "ngram", "logprobs": True}, "stop"),
        ({"tool_choice": "required", "retries": 1}, "tool_calls"),
    ]
    for fields, reason in cases:
        body = {
            "messages": [{"role": "user", "content": "Add."}],
            "tools": [{"type": "function", "function": FUNCTION}],
            "parallel_tool_calls": False, "seed": 1, "max_tokens": 200, **fields,
        }  # fmt: skip
        for whole, streamed in zip(*both(tiny, "chat/completions", body), strict=True):
            assert whole["finish_reason"] == streamed["finish_reason"] == reason, fields
            assert whole["message"]["content"] is None, fields
            assert not streamed["content"], fields
            (call,), ((first, *rest),) = whole["message"]["tool_calls"], streamed["tool_calls"].values()
            assert (call["type"], call["function"]["name"]) == ("function", "add"), fields
            assert set(json.loads(call["function"]["arguments"])) == {"a"}, fields
            assert first["function"] == {"name": "add", "arguments": ""}, fields
            assert first["id"].startswith("call_"), fields
            assert [part.keys() for part in rest] == [{"index", "function"}] * len(rest), fields
            assert len(rest) == 1 if "retries" in fields else rest  # tokens that come together are one piece
            assert "".join(part["function"]["arguments"] for part in rest) == call["function"]["arguments"]
            logprobs = whole["logprobs"]["content"] if "logprobs" in fields else []
            assert streamed["logprobs"] == logprobs, fields


def both(client, path, body):
    """The choices of a reply, and those of its stream with all deltas joined."""
    whole = post(client, path, **body)["choices"]
    streamed = [
        {"content": "", "tool_calls": {}, "logprobs": [], "finish_reason": None} for _ in range(len(whole))
    ]
    for chunk in events(client.post(f"/v1/{path}", json={**body, "stream": True})):
        (choice,) = chunk["choices"]
        joined, delta = streamed[choice["index"]], choice["delta"]
        joined["content"] += delta.get("content", "")
        for part in delta.get("tool_calls", ()):
            joined["tool_calls"].setdefault(part["index"], []).append(part)
        joined["logprobs"] += (choice["logprobs"] or {}).get("content", [])
        joined["finish_reason"] = joined["finish_reason"] or choice["finish_reason"]
    return whole, streamed
