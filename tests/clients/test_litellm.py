"""litellm on a real model: chats, completions, responses, tools and structures, waited for or not."""

import json

import pytest
from pydantic import BaseModel

litellm = pytest.importorskip("litellm")

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = [{"role": "user", "content": "What is the weather in Paris?"}]


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def options(smol):
    return {"model": "openai/smol", "api_base": smol.url, "api_key": "any", "num_retries": 0}


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def test_an_answer_waited_for_or_not(options, wait):
    asked = chat("What is the capital of France?")
    found = litellm.completion(**options, **asked)
    assert found.choices[0].finish_reason == "stop"
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    same = wait(litellm.acompletion(**options, **asked))
    assert same.choices[0].message.content == found.choices[0].message.content


def test_a_stream_is_the_whole(options):
    asked = chat("What is the capital of France?")
    whole = litellm.completion(**options, **asked)
    chunks = list(litellm.completion(**options, **asked, stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks, messages=asked["messages"])
    assert built.choices[0].message.content == whole.choices[0].message.content
    assert built.usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_tool_and_the_answer_after_it(options, is_stream):
    made = litellm.completion(
        **options, messages=ASKED, tools=[TOOL], tool_choice="required", stream=is_stream
    )
    made = litellm.stream_chunk_builder(list(made)) if is_stream else made
    (choice,) = made.choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": "Paris is sunny."}
    after = litellm.completion(**options, messages=[*ASKED, choice.message, result], tools=[TOOL])
    assert after.choices[0].finish_reason in ("stop", "tool_calls", "length")


@pytest.mark.parametrize("form", [Person, {"type": "json_object"}])
def test_structures(options, form):
    found = litellm.completion(**options, **chat("Return JSON: Jason is 25 years old.", response_format=form))
    value = json.loads(found.choices[0].message.content)
    assert isinstance(value, dict)
    assert form is not Person or Person(**value)


def test_completions_and_responses(options):
    text = litellm.text_completion(
        **{**options, "model": "text-completion-openai/smol"}, prompt="Once upon a time", max_tokens=8
    )
    assert text.choices[0].text
    found = litellm.responses(**options, input="What is the capital of France?")
    assert found.output[0].content[0].text
    events = list(litellm.responses(**options, input="What is the capital of France?", stream=True))
    assert events[-1].type == "response.completed"
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == found.output[0].content[0].text


def test_errors_have_the_classes_of_the_package(options):
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(**{**options, "model": "openai/other"}, **chat("Hello"))
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**options, **chat("Hello", top_p=7))
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(**options, **chat("word " * 20000))
