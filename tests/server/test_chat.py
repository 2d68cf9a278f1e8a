"""/v1/chat/completions: messages, formats, tools, and the text about a structure in the prompt."""

import json
from itertools import product

import pytest

from gencli import LLM
from gencli.batch.batch_records import Record, Row
from gencli.batch.batch_setup import row_request
from gencli.chat.chat_state import Conversation, open_chat, prompt_ids
from gencli.cli.app import main
from gencli.config.job import make_job
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError
from gencli.helpers import once
from tests.server.conftest import LETTERS, events, post, refusal, serve

MESSAGES = [{"role": "system", "content": "Book"}, {"role": "user", "content": "What is the best book"}]
CHAT = {"messages": MESSAGES, "seed": 1, "max_tokens": 8, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def content(client, **body):
    return post(client, "chat/completions", **body)["choices"][0]["message"]["content"]


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
    error = refusal(
        tiny, "chat/completions", messages=[*MESSAGES, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    )
    assert "The chat template of tiny failed" in error["message"]
    assert "/" not in error["message"]


def test_a_wrong_format_is_refused(tiny):
    cases = [
        {"type": "sound"}, {}, "json", {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}},
        {"type": "json_object", "schema": 123}, {"type": "json_object", "schema": {"type": 123}},
        {"type": "json_object", "schema": {"type": "hiccup"}},
        {"type": "json_schema", "json_schema": {"schema": {"properties": {"foo": "bar"}}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/none"}}},
    ]  # fmt: skip
    for form in cases:
        assert refusal(tiny, "chat/completions", **CHAT, response_format=form)["param"].startswith(
            "response_format"
        ), form


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
            (choice,) = post(tiny, "chat/completions", **body)["choices"]
            text, entries = choice["message"]["content"], choice["logprobs"]["content"]
        assert "".join(entry["token"] for entry in entries).startswith(text), stream
        for entry in entries:
            assert len(entry["top_logprobs"]) == 10, stream
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"] <= 0, stream
            assert bytes(entry["bytes"]).decode() == entry["token"], stream
    entries = post(tiny, "chat/completions", **CHAT, logprobs=True)["choices"][0]["logprobs"]["content"]
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
        assert refusal(tiny, "chat/completions", **CHAT, **body)["param"].startswith(param), body


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
            (choice,) = post(tiny, "chat/completions", **body)["choices"]
            assert "tool_calls" not in choice["message"], stream
            assert not choice["message"]["content"], stream
            assert choice["finish_reason"] == "length", stream


def test_tools_beside_a_schema_give_a_call_or_an_answer_of_it(tiny):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    body = {**CHAT, "max_tokens": 120, "temperature": 1.2, "tools": [TOOL], "response_format": form}
    for seed in range(4):
        (choice,) = post(tiny, "chat/completions", **{**body, "seed": seed})["choices"]
        message = choice["message"]
        if "tool_calls" in message:
            assert (choice["finish_reason"], message["content"]) == ("tool_calls", None), seed
        else:
            assert json.loads(message["content"])["n"] <= 9, seed
        chunks = events(tiny.post("/v1/chat/completions", json={**body, "seed": seed, "stream": True}))
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        assert text == (message["content"] or ""), seed
    (choice,) = post(tiny, "chat/completions", **body, tool_choice="required")["choices"]
    assert choice["message"]["tool_calls"]


SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'
BEEP = {"type": "function", "function": {"name": "beep", "description": "It beeps.", "parameters": {}}}
TURN = {"role": "user", "content": "Who?"}
SHOWN = {
    "schema": {"json_schema": SCHEMA, "schema_in_prompt": "on"},
    "text": {"json_schema": SCHEMA, "schema_in_prompt": "Fill in {schema}."},
    "tools": {"tools": json.dumps([BEEP])},
    "both": {"tools": json.dumps([BEEP]), "json_schema": SCHEMA, "schema_in_prompt": "on"},
}


def asked(client, **body):
    """The text of the prompt of a chat or a completion."""
    route = "chat/completions" if "messages" in body else "completions"
    reply = post(client, route, **{"max_tokens": 1, "return_token_ids": True, **body})
    ids = reply.get("prompt_token_ids") or reply["choices"][0]["prompt_token_ids"]
    assert reply["usage"]["prompt_tokens"] == len(ids)
    return ids


@pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")
@pytest.mark.parametrize("case", SHOWN)
@pytest.mark.parametrize("is_chat", [True, False])
def test_every_door_makes_the_same_prompt(fake, capfd, case, is_chat):
    values = SHOWN[case]
    body = {"messages": [TURN]} if is_chat else {"prompt": "Who?"}
    ids = asked(fake, **body, **values)
    text = bytes(ids).decode()
    assert ("beep" in text) == ("tools" in values and (is_chat or case == "both"))
    assert (SCHEMA in text) == ("schema_in_prompt" in values)

    flags = [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", value)]
    line = ["run", "--model", "fake", *flags, "--show-prompt", "--format", "json", "Who?"]
    assert main([*line, *(["--chat"] if is_chat else [])]) == 0
    assert json.loads(capfd.readouterr().out)["ids"] == ids

    job = make_job(resolve((FLAG, {"model": "fake", "chat": is_chat, **values})))
    row = Row(Record(0, "1", {}), "1", "Who?")
    with LLM("fake") as llm:
        assert list(row_request(row, job, llm.tokenizer).prompt_ids) == ids
        values = {**values, "max_tokens": 1, "prompt_logprobs": 0, "partial": True}
        (out,) = llm.chat([[TURN]], **values) if is_chat else llm.generate(["Who?"], **values)
        assert [entry.chosen.id for entry in out.prompt_logprobs if entry] == ids[1:]
        chat = open_chat({"model": "fake", **SHOWN[case], **({} if is_chat else {"raw": True})})
        talk = Conversation(1).asked("Who?")
        told = chat.job.instructions
        made = prompt_ids(talk, llm.tokenizer, is_raw=not is_chat, context=4096, instructions=told)
        assert list(made) == ids


def test_a_client_may_turn_it_off(fake):
    plain = asked(fake, messages=[TURN])
    assert asked(fake, messages=[TURN], tools=[BEEP]) != plain
    assert asked(fake, messages=[TURN], tools=[BEEP], schema_in_prompt="off") == plain
    assert asked(fake, messages=[TURN], json_schema=SCHEMA) == plain


def test_a_default_of_the_server_goes_with_any_request():
    with serve(schema_in_prompt="on", max_tokens=1) as client:
        assert SCHEMA in bytes(asked(client, messages=[TURN], json_schema=SCHEMA)).decode()
        assert asked(client, prompt="Who?", regex="a") == list(b"Who?")
        assert asked(client, prompt="Who?") == list(b"Who?")
        reply = client.post("/tokenize", json={"messages": [TURN], "tools": [BEEP]}).json()
        assert b"beep" in bytes(reply["tokens"])


def test_an_echo_has_the_prompt_that_the_model_read(fake):
    body = {"prompt": "Who?", "max_tokens": 1, "echo": True, "json_schema": SCHEMA, "partial": True}
    reply = fake.post("/v1/completions", json={**body, "schema_in_prompt": "{schema}"}).json()
    assert reply["choices"][0]["text"].startswith(f"{SCHEMA}\n\nWho?")


def test_what_cannot_have_a_text_before_it_is_refused(fake):
    for prompt, place, param, code in (
        ([104, 105], "on", "schema_in_prompt", "invalid_value"),
        ("Who?", "x", "schema_in_prompt", "invalid_value"),
        ("Who?", "{schema}" + "x" * 2**17, "schema_in_prompt", "too_large"),
    ):
        body = {"prompt": prompt, "json_schema": SCHEMA, "schema_in_prompt": place, "max_tokens": 1}
        error = refusal(fake, "completions", **body)
        assert (error["param"], error["code"]) == (param, code), place
    with LLM("fake") as llm, pytest.raises(UsageError, match="not of token ids"):
        llm.generate_from_ids([[104, 105]], json_schema=SCHEMA, schema_in_prompt="on")


def test_the_operator_is_told_once_who_tells_of_the_tools(fake):
    told = []
    preparer = fake.serving.preparer
    preparer._notice = once(told.append)
    for _ in range(2):
        asked(fake, messages=[TURN], tools=[BEEP])
    assert len(told) == 1
    assert "no place for tools" in told[0]
