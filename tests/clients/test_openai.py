"""The package openai against a real server. `strict` checks every reply against the types of the package."""

import asyncio
import json
from contextlib import closing
from importlib.util import find_spec
from itertools import product
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from gencli import LLM

pytestmark = pytest.mark.skipif(find_spec("openai") is None, reason="the package openai is not installed")


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hello!"}], "seed": 5}


TEXT = {"model": "tiny", "prompt": "Once upon a time", "seed": 7}


LONG = {**TEXT, "n": 64, "max_tokens": 900, "extra_body": {"ignore_eos": True}}


class Person(BaseModel):
    name: Literal["Nora", "Tom"]
    age: int = Field(ge=1, le=99)


@pytest.fixture(scope="module")
def openai():
    return pytest.importorskip("openai")  # here, as it takes a second that tests of others need not wait for


def make(openai, server, **options):
    return openai.OpenAI(base_url=server.url, api_key="any", max_retries=0, timeout=60, **options)


@pytest.fixture(scope="module")
def strict(openai, server):
    with make(openai, server, _strict_response_validation=True) as client:
        yield client


@pytest.fixture(scope="module")
def loose(openai, server):
    """For streams of completions and echo, whose nulls the package's types do not allow."""
    with make(openai, server) as client:
        yield client


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32") as made:
        yield made


def test_echo(loose):
    (choice,) = loose.completions.create(**TEXT, max_tokens=3, echo=True, logprobs=1).choices
    assert choice.text.startswith(TEXT["prompt"])
    assert choice.logprobs.token_logprobs[0] is choice.logprobs.top_logprobs[0] is None
    assert None not in choice.logprobs.token_logprobs[1:]
    (scored,) = loose.completions.create(**TEXT, max_tokens=0, echo=True, logprobs=1).choices
    assert scored.logprobs.token_logprobs == choice.logprobs.token_logprobs[:-3]


def test_an_unknown_model_is_not_found(openai, strict):
    with pytest.raises(openai.NotFoundError) as caught:
        strict.models.retrieve("other")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_a_full_server_is_a_rate_limit_and_a_closed_stream_ends_it(openai, strict, loose, server):
    with closing(loose.completions.create(**LONG, stream=True)) as stream:
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as caught:
            strict.completions.create(**TEXT)
        assert caught.value.response.headers["retry-after"] == "1"
    assert server.is_idle()
    assert strict.completions.create(**TEXT, max_tokens=2).choices


def test_models(strict):
    (model,) = strict.models.list().data
    assert (model.id, model.object, strict.models.retrieve("tiny")) == ("tiny", "model", model)


def test_a_chat_is_that_of_the_library(strict, llm):
    expected = llm.chat(CHAT["messages"], seed=5, max_tokens=30, temperature=0.8)
    found = strict.chat.completions.create(**CHAT, max_completion_tokens=30, temperature=0.8, n=2)
    assert found.choices[0].message.content == expected.text
    assert [choice.index for choice in found.choices] == [0, 1]
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found._request_id
    raw = strict.chat.completions.with_raw_response.create(**CHAT, max_tokens=30, temperature=0.8)
    assert raw.parse().choices[0].message.content == expected.text
    assert raw.headers["content-type"] == "application/json"


def test_a_streamed_chat(strict):
    for has_usage in [True, False]:
        whole = strict.chat.completions.create(**CHAT, max_tokens=20)
        options = {"stream_options": {"include_usage": True}} if has_usage else {}
        chunks = list(strict.chat.completions.create(**CHAT, max_tokens=20, stream=True, **options))
        texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
        assert "".join(texts) == whole.choices[0].message.content, has_usage
        assert [chunk.usage for chunk in chunks if chunk.usage] == ([whole.usage] if has_usage else [])
        with strict.chat.completions.stream(**CHAT, max_tokens=20) as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_completion().choices[0].message.content == "".join(texts), has_usage
        assert kinds.count("content.done") == 1, has_usage


def test_tools_whole_and_streamed(openai, strict):
    tools = [openai.pydantic_function_tool(Person, name="save")]
    asked = {
        **CHAT,
        "tools": tools,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 200,
    }
    (choice,) = strict.chat.completions.create(**asked).choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "save")
    Person.model_validate_json(call.function.arguments)
    with strict.chat.completions.stream(**asked) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        (same,) = stream.get_final_completion().choices[0].message.tool_calls
    assert [event.arguments for event in done] == [call.function.arguments]
    assert isinstance(same.function.parsed_arguments, Person)
    answer = {"role": "tool", "tool_call_id": call.id, "content": "saved"}
    with pytest.raises(
        openai.BadRequestError, match="of tiny failed: This model knows the roles system, user"
    ):
        strict.chat.completions.create(**{**CHAT, "messages": [*CHAT["messages"], choice.message, answer]})


def test_structured_answers_are_parsed(openai, strict):
    schema = {"type": "json_schema", "json_schema": {"name": "p", "schema": Person.model_json_schema()}}
    (choice,) = strict.chat.completions.create(**CHAT, response_format=schema, max_tokens=200).choices
    assert Person.model_validate(json.loads(choice.message.content))
    found = strict.chat.completions.parse(**CHAT, response_format=Person, max_tokens=200)
    assert found.choices[0].message.parsed.name in ("Nora", "Tom")
    response = strict.responses.parse(model="tiny", input="Who?", text_format=Person, extra_body={"seed": 1})
    assert 1 <= response.output_parsed.age <= 99
    with pytest.raises(openai.LengthFinishReasonError):
        strict.chat.completions.parse(**CHAT, response_format=Person, max_tokens=2)


def test_completions(strict, loose, llm):
    expected = llm.generate(TEXT["prompt"], seed=7, n=2, max_tokens=12, temperature=0.8)
    asked = {**TEXT, "max_tokens": 12, "temperature": 0.8}
    found = strict.completions.create(**asked, n=2, logprobs=2)
    assert [choice.text for choice in found.choices] == expected.texts
    assert "".join(found.choices[0].logprobs.tokens) == expected.texts[0]
    several = strict.completions.create(**{**asked, "prompt": [[480, 481], [265]]}, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    chunks = list(loose.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == expected.texts[0]
    assert chunks[-1].usage.completion_tokens == 12


def test_responses(strict):
    asked = {"model": "tiny", "input": "Hello!", "instructions": "Be brief.", "max_output_tokens": 24}
    found = strict.responses.create(**asked, extra_body={"seed": 3})
    assert found.output_text == found.output[0].content[0].text
    with strict.responses.stream(**asked, extra_body={"seed": 3}) as stream:
        events = list(stream)
        assert stream.get_final_response().output_text == found.output_text
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == found.output_text
    raw = list(strict.responses.create(**asked, extra_body={"seed": 3}, stream=True))
    assert [event.sequence_number for event in raw] == list(range(len(raw)))


def test_errors_name_the_field(openai, strict):
    cases = [
        ({"top_p": 7}, "top_p", "invalid_value"),
        ({"extra_body": {"top_kk": 5}}, "top_kk", "unknown_field"),
        ({"prompt": "a " * 4000}, None, "context_length_exceeded"),
        ({"logprobs": 21}, "logprobs", "too_large"),
    ]
    for (body, param, code), stream in product(cases, [False, True]):
        with pytest.raises(openai.BadRequestError) as caught:
            strict.completions.create(**{**TEXT, **body}, stream=stream)
        assert (caught.value.code, caught.value.type) == (code, "invalid_request_error"), (stream, body)
        assert param is None or caught.value.param == param, (stream, body)


def test_many_at_once_have_the_text_of_each_alone(openai, strict, server):
    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="any", max_retries=5) as client:
            asked = (
                client.chat.completions.create(**{**CHAT, "seed": seed}, max_tokens=8) for seed in range(6)
            )
            return await asyncio.gather(*asked)

    together = [found.choices[0].message.content for found in asyncio.run(ask())]
    alone = [strict.chat.completions.create(**{**CHAT, "seed": seed}, max_tokens=8) for seed in range(6)]
    assert together == [found.choices[0].message.content for found in alone]


def test_log_probabilities(strict):
    found = strict.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2, max_tokens=6).choices[0]
    entries = found.logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode().startswith(found.message.content)
    assert [len(entry.top_logprobs) for entry in entries] == [2] * len(entries)
    chunks = strict.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2, max_tokens=6, stream=True)
    parts = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    assert [entry for part in parts for entry in part.content] == entries


def test_a_call_of_responses(strict):
    tool = {"type": "function", "name": "save", "parameters": Person.model_json_schema(), "strict": True}
    asked = {"model": "tiny", "input": "Save.", "tools": [tool], "tool_choice": "required"}
    found = strict.responses.create(**asked, parallel_tool_calls=False, extra_body={"seed": 1})
    (call,) = found.output
    Person.model_validate_json(call.arguments)
    assert found.tools[0].name == "save"


def test_a_timeout_ends_the_work(openai, strict, server):
    with pytest.raises(openai.APITimeoutError):
        strict.completions.create(**LONG, timeout=0.2)
    assert server.is_idle()
