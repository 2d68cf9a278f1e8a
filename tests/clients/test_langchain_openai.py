"""langchain-openai on a real model: ChatOpenAI by chats and by responses, and OpenAI by completions."""

import json

import pytest
from pydantic import BaseModel, Field

lang = pytest.importorskip("langchain_openai")
messages = pytest.importorskip("langchain_core.messages")
tools = pytest.importorskip("langchain_core.tools")


class Person(BaseModel):
    """A person."""

    name: str
    age: int = Field(ge=0, le=150)


@tools.tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city} is sunny, 20 degrees."


@pytest.fixture(params=[False, True], ids=["chat", "responses"])
def model(smol, request):
    return lang.ChatOpenAI(
        model="smol",
        base_url=smol.url,
        api_key="any",
        max_retries=0,
        use_responses_api=request.param,
        stream_usage=True,
    )


def test_an_answer(model, wait):
    found = model.invoke([("system", "You answer questions."), ("human", "What is the capital of France?")])
    assert found.text
    assert found.usage_metadata["total_tokens"] > found.usage_metadata["output_tokens"] > 0
    assert wait(model.ainvoke("What is the capital of France?")).text


def test_a_stream(model):
    whole = model.invoke("What is the capital of France?")
    first, *others = model.stream("What is the capital of France?")
    for other in others:
        first += other
    assert first.text == whole.text
    assert first.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_several_prompts(model):
    assert len(model.batch(["What is 2 + 2?", "Is the sky blue? Answer yes or no."])) == 2


@pytest.mark.parametrize("choice", ["any", "get_weather", "required"])
def test_a_tool_and_the_answer_after_it(model, choice):
    asked = [messages.HumanMessage("What is the weather in Paris?")]
    call = model.bind_tools([get_weather], tool_choice=choice).invoke(asked)
    assert [each["name"] for each in call.tool_calls] == ["get_weather"]
    answer = model.bind_tools([get_weather]).invoke([*asked, call, get_weather.invoke(call.tool_calls[0])])
    assert "sunny" in answer.text


def test_a_streamed_tool(model):
    bound = model.bind_tools([get_weather], tool_choice="any")
    first, *others = bound.stream("What is the weather in Paris?")
    for other in others:
        first += other
    assert [each["args"] for each in first.tool_calls] == [{"city": "Paris"}]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output(model, method):
    bound = model.with_structured_output(Person, method=method, include_raw=True)
    found = bound.invoke("Return JSON with the keys name and age. Jason is 25 years old.")
    assert found["parsing_error"] is None or method == "json_mode"  # which promises no schema
    assert method == "json_mode" or isinstance(found["parsed"], Person)
    assert found["raw"].response_metadata


def test_structured_output_beside_tools(model):
    bound = model.bind_tools([get_weather], response_format=Person, strict=True)
    found = bound.invoke("Jason is 25 years old.")
    assert found.tool_calls or Person.model_validate(json.loads(found.text))


def test_completions(smol):
    model = lang.OpenAI(model="smol", base_url=smol.url, api_key="any", max_tokens=16)
    assert model.invoke("Once upon a time").strip()
    assert "".join(model.stream("Once upon a time")).strip()


def test_log_probabilities(smol):
    model = lang.ChatOpenAI(model="smol", base_url=smol.url, api_key="any", logprobs=True, top_logprobs=2)
    found = model.invoke("What is 2 + 2?")
    assert all(len(entry["top_logprobs"]) == 2 for entry in found.response_metadata["logprobs"]["content"])


def test_a_prompt_that_is_too_long_has_an_error_of_its_own(model):
    exceptions = pytest.importorskip("langchain_core.exceptions")
    with pytest.raises(exceptions.ContextOverflowError):
        model.invoke("word " * 20000)
