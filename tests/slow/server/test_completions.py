"""/v1/completions: the texts of the library in any company, and structures."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from scripts.same_text import among, make_asks, through_batch, through_http, through_python, through_run
from tests.helpers.option_walk import run_line
from tests.helpers.quick import quick_gencli
from tests.server.conftest import events, idle, post, serve
from tests.server.test_completions import HI_J, TEXT, llm, texts


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


def test_samples_differ_and_end_for_themselves(fake):
    body = {"prompt": "hi", "n": 3, "max_tokens": 900, "seed": 42, "logprobs": 0}
    choices = post(fake, "completions", **body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3
    assert len({len(choice["logprobs"]["tokens"]) for choice in choices}) > 1
    chunks = events(fake.post("/v1/completions", json={**body, "stream": True}))
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    assert sum(part["finish_reason"] is not None for part in parts) == 3
    joined = ["".join(part["text"] for part in parts if part["index"] == number) for number in range(3)]
    assert joined == [choice["text"] for choice in choices]


def test_requests_share_the_slots():
    for slots, requests in [(1, 3), (2, 2), (2, 4), (4, 2), (4, 6)]:
        with serve(max_batch=slots) as client, ThreadPoolExecutor(requests) as pool:
            found = list(pool.map(lambda seed: texts(client, **{**HI_J, "seed": seed}), range(requests)))
            alone = [texts(client, **{**HI_J, "seed": seed}) for seed in range(requests)]
            assert found == alone, (slots, requests)
            assert idle(client.serving), (slots, requests)


def test_a_seed_gives_one_text_whatever_is_kept_and_however_many_run(fake):
    for slots in [1, 4]:
        expected = texts(fake, **HI_J)
        with serve(max_batch=slots) as client, ThreadPoolExecutor(6) as pool:
            found = list(
                pool.map(lambda cached: texts(client, **HI_J, cache_prompt=cached), [True, False] * 3)
            )
        assert found == [expected] * 6, slots
    assert len({texts(fake, **{**HI_J, "seed": seed})[0] for seed in range(4)}) == 4


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
FLAT_TOOLS = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
TAG = {
    "type": "tag",
    "begin": "<f=",
    "content": {"type": "json_schema", "json_schema": {"type": "object"}},
    "end": "</f>",
}
TAGS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [TAG]}}
PROMPT = "Tell me about the sea."
LENGTHS = (1, 3, 12)  # tests/nightly/server has others, and texts that are drawn
GREEDY = {"temperature": 0}


def completion(client, **body):
    return client.post("/v1/completions", json={"prompt": PROMPT, **body}).json()["choices"][0]["text"]


def streamed(client, **body):
    reply = client.post("/v1/completions", json={"prompt": PROMPT, "stream": True, **body})
    return "".join(chunk["choices"][0]["text"] for chunk in events(reply))


def chat(client, **body):
    messages = [{"role": "user", "content": PROMPT}]
    reply = client.post("/v1/chat/completions", json={"messages": messages, **body}).json()
    return reply["choices"][0]["message"]["content"]


def response_text(client, max_tokens, **body):
    asked = {"input": PROMPT, "max_output_tokens": max_tokens, **body}
    reply = client.post("/v1/responses", json=asked).json()
    return reply["output"][0]["content"][0]["text"]


FREE = [
    (completion, {"structural_tag": json.dumps(TAGS)}),
    (streamed, {"tools": TOOLS}),
    (streamed, {"tools": TOOLS, "grammar_backend": "llguidance"}),
    # The template has no place for tools; the text that tells of them is another prompt.
    (chat, {"tools": TOOLS, "schema_in_prompt": "off"}),
    (response_text, {"tools": FLAT_TOOLS, "schema_in_prompt": "off"}),
]


def check_free_text(client, draw, lengths):
    for ask, structure in FREE:
        for length in (16,) if ask is response_text else lengths:
            plain, free = (ask(client, max_tokens=length, **draw, **more) for more in ({}, structure))
            assert free == plain, (ask, structure, draw, length)


def test_a_text_without_a_call_is_the_text_without_tools(tiny):
    check_free_text(tiny, GREEDY, LENGTHS)


def test_so_it_is_in_the_shell():
    for length in (1, 4, 10):
        line = ["run", "-m", "tiny", "-t", "0", "--max-tokens", str(length), "--raw", PROMPT]
        plain, free = (run_line([*line, *more])[1] for more in ([], ["--tools", json.dumps(TOOLS)]))
        assert free == plain, length


def test_the_same_seed_is_the_same_text_whatever_asks_and_whoever_is_beside(server):
    asks, program = make_asks(4), [str(quick_gencli())]
    expected = through_python(asks)
    assert len(set(expected)) == 4
    assert through_batch(asks, program) == expected
    assert through_run(asks[:1], program) == expected[:1]
    address = server.root.removeprefix("http://")
    assert through_http(asks, address) == expected
    texts, others = among(asks, address, 7)
    assert texts == expected
    assert others.num_whole
    assert server.is_idle()
