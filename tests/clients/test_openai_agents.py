"""openai-agents on a real model, by chats and by responses: its quickstart, tools, output types, handoffs."""

import asyncio

import pytest
from pydantic import BaseModel, Field

agents = pytest.importorskip("agents")
openai = pytest.importorskip("openai")


class Weather(BaseModel):
    city: str
    degrees: int = Field(ge=-50, le=60)


@pytest.fixture(params=["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def model(smol, request):
    client = openai.AsyncOpenAI(base_url=smol.url, api_key="any", max_retries=0)
    return getattr(agents, request.param)("smol", client)


@pytest.fixture
def tool():
    """A tool that is offered once: such a small model would call it again and again."""
    calls = []

    @agents.function_tool(is_enabled=lambda context, agent: not calls)
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        calls.append(city)
        return f"{city} is sunny, 20 degrees."

    get_weather.calls = calls
    return get_weather


def run(model, asked, **options):
    return agents.Runner.run_sync(agents.Agent("Assistant", model=model, **options), asked)


def kinds(result):
    return [item.type for item in result.new_items]


def test_an_answer_and_a_second_turn(model):
    first = run(model, "What is the capital of France?", instructions="You answer questions.")
    assert "Paris" in first.final_output
    usage = first.context_wrapper.usage
    assert usage.requests == 1
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 0
    again = [*first.to_input_list(), {"role": "user", "content": "What is 2 + 2?"}]
    assert run(model, again).final_output


@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_tool_and_the_answer_after_it(model, tool, choice):
    settings = agents.ModelSettings(tool_choice=choice)
    done = run(model, "What is the weather in Paris?", tools=[tool], model_settings=settings)
    assert kinds(done) == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert tool.calls == ["Paris"]
    assert "sunny" in done.final_output


def test_an_output_type(model):
    assert run(model, "Paris has 20 degrees.", output_type=Weather).final_output == Weather(
        city="Paris", degrees=20
    )
    assert isinstance(run(model, "Two and three.", output_type=list[int]).final_output, list)


def test_tools_beside_an_output_type(model, tool):
    done = run(model, "What is the weather in Paris?", tools=[tool], output_type=Weather)
    assert isinstance(done.final_output, Weather)
    assert tool.calls == ["Paris"]


def test_a_stream_with_a_tool(model, tool):
    async def ask():
        settings = agents.ModelSettings(tool_choice="required", include_usage=True)
        agent = agents.Agent("Assistant", model=model, tools=[tool], model_settings=settings)
        done = agents.Runner.run_streamed(agent, "What is the weather in Paris?")
        events = [event async for event in done.stream_events()]
        return done, [event.data for event in events if event.type == "raw_response_event"]

    done, events = asyncio.run(ask())
    assert kinds(done) == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == done.final_output
    assert [event.type for event in events].count("response.completed") == 2
    assert done.context_wrapper.usage.total_tokens > 0


def test_a_handoff(model):
    math = agents.Agent("Math", instructions="You do math.", model=model)
    settings = agents.ModelSettings(tool_choice="required")
    done = run(model, "What is 2 + 2?", handoffs=[math], model_settings=settings)
    assert done.last_agent is math
    assert kinds(done) == ["handoff_call_item", "handoff_output_item", "message_output_item"]


def test_a_session(model, tool):
    session = agents.SQLiteSession("one")
    agent = agents.Agent("Assistant", model=model, tools=[tool])
    for asked in ("What is the capital of France?", "What is 2 + 2?"):
        assert agents.Runner.run_sync(agent, asked, session=session).final_output
    assert len(asyncio.run(session.get_items())) == 4
