"""smolagents on a real model: its agents that call tools and that write code, with and without a stream."""

import pytest

smolagents = pytest.importorskip("smolagents")


@smolagents.tool
def get_weather(city: str) -> str:
    """Return the weather of a city.

    Args:
        city: The name of the city.
    """
    return f"{city} is sunny, 20 degrees."


@pytest.fixture(scope="module")
def model(smol):
    return smolagents.OpenAIModel(model_id="smol", api_base=smol.url, api_key="any")


def message(text):
    return [smolagents.ChatMessage(role="user", content=[{"type": "text", "text": text}])]


def test_an_answer_and_a_stream(model):
    found = model.generate(message("What is the capital of France?"))
    assert found.token_usage.output_tokens > 0
    parts = list(model.generate_stream(message("What is the capital of France?")))
    assert "".join(part.content or "" for part in parts) == found.content
    assert [part.token_usage.output_tokens for part in parts if part.token_usage]


def test_stop_sequences_and_a_grammar(model):
    found = model.generate(message("What is the capital of France?"), stop_sequences=[" is"])
    assert " is" not in found.content
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    form = {"type": "json_schema", "json_schema": {"name": "age", "schema": schema, "strict": True}}
    assert '"age"' in model.generate(message("Jason is 25 years old."), response_format=form).content


def test_a_tool(model):
    found = model.generate(message("What is the weather in Paris?"), tools_to_call_from=[get_weather])
    (call, *_) = found.tool_calls
    assert call.function.name == "get_weather"


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_agent_with_tools(model, is_stream):
    agent = smolagents.ToolCallingAgent(
        tools=[get_weather], model=model, max_steps=2, stream_outputs=is_stream, verbosity_level=0
    )
    done = agent.run("What is the weather in Paris?", return_full_result=True)
    calls = [call for step in done.steps for call in step.get("tool_calls") or []]
    assert calls
    assert done.token_usage.output_tokens > 0


@pytest.mark.parametrize("has_structure", [False, True])
def test_an_agent_that_writes_code(model, has_structure):
    agent = smolagents.CodeAgent(
        tools=[], model=model, max_steps=1, use_structured_outputs_internally=has_structure, verbosity_level=0
    )
    done = agent.run("What is 2 + 2?", return_full_result=True)
    assert done.output
    assert done.token_usage.output_tokens > 0
