"""Outside of a call or tag the text is free: up to the last token it is the text without tools."""

import json

from tests.helpers.option_walk import run_line
from tests.server.conftest import events

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
FLAT_TOOLS = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
TAG = {
    "type": "tag",
    "begin": "<f=",
    "content": {"type": "json_schema", "json_schema": {"type": "object"}},
    "end": "</f>",
}
TAGS = {
    "type": "structural_tag",
    "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [TAG]},
}
PROMPT = "Tell me about the sea."
LENGTHS = (1, 2, 3, 4, 5, 12)
DRAWS = ({"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 3})


def completion(client, **body):
    return client.post("/v1/completions", json={"prompt": PROMPT, **body}).json()["choices"][0]["text"]


def streamed(client, **body):
    reply = client.post("/v1/completions", json={"prompt": PROMPT, "stream": True, **body})
    return "".join(chunk["choices"][0]["text"] for chunk in events(reply))


def chat(client, **body):
    messages = [{"role": "user", "content": PROMPT}]
    reply = client.post("/v1/chat/completions", json={"messages": messages, **body}).json()
    return reply["choices"][0]["message"]["content"]


def response(client, max_tokens, **body):
    asked = {"input": PROMPT, "max_output_tokens": max_tokens, **body}
    reply = client.post("/v1/responses", json=asked).json()
    return reply["output"][0]["content"][0]["text"]


def test_a_text_without_a_call_is_the_text_without_tools(tiny):
    cases = [
        (completion, {"structural_tag": json.dumps(TAGS)}),
        (streamed, {"tools": TOOLS}),
        (streamed, {"tools": TOOLS, "grammar_backend": "llguidance"}),
        # The template has no place for tools; the text that tells of them is another prompt.
        (chat, {"tools": TOOLS, "schema_in_prompt": "off"}),
        (response, {"tools": FLAT_TOOLS, "schema_in_prompt": "off"}),
    ]
    for (ask, structure), draw in ((case, draw) for case in cases for draw in DRAWS):
        for length in (16,) if ask is response else LENGTHS:
            plain, free = (ask(tiny, max_tokens=length, **draw, **more) for more in ({}, structure))
            assert free == plain, (ask, structure, draw, length)


def test_so_it_is_in_the_shell():
    for length in (1, 4, 10):
        line = ["run", "-m", "tiny", "-t", "0", "--max-tokens", str(length), "--raw", PROMPT]
        plain, free = (run_line([*line, *more])[1] for more in ([], ["--tools", json.dumps(TOOLS)]))
        assert free == plain, length
