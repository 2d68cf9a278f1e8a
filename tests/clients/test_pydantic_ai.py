"""pydantic-ai on a real model, by chats and by responses: answers, streams, tools, each kind of output."""

import pytest
from pydantic import BaseModel, Field

ai = pytest.importorskip("pydantic_ai")
openai_models = pytest.importorskip("pydantic_ai.models.openai")
providers = pytest.importorskip("pydantic_ai.providers.openai")


class Weather(BaseModel):
    city: str
    degrees: int = Field(ge=-50, le=60)


@pytest.fixture(params=["OpenAIChatModel", "OpenAIResponsesModel"])
def model(smol, request):
    provider = providers.OpenAIProvider(base_url=smol.url, api_key="any")
    return getattr(openai_models, request.param)("smol", provider=provider)


@pytest.fixture
def tools():
    """A tool that is offered once: such a small model would call it again and again."""
    calls = []

    async def once(context, definition):
        return None if calls else definition

    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        calls.append(city)
        return f"{city} is sunny, 20 degrees."

    return [ai.Tool(get_weather, prepare=once)], calls


def test_an_answer_and_a_second_turn(model, wait):
    agent = ai.Agent(model, instructions="You answer questions.")
    first = wait(agent.run("What is the capital of France?"))
    assert first.output
    assert first.usage.input_tokens > 0 < first.usage.output_tokens
    assert wait(agent.run("What is 2 + 2?", message_history=first.new_messages())).output


def test_a_stream(model, wait):
    async def ask():
        async with ai.Agent(model).run_stream("What is the capital of France?") as reply:
            texts = [text async for text in reply.stream_text(delta=True)]
            return "".join(texts), await reply.get_output(), reply.usage

    text, output, usage = wait(ask())
    assert text == output
    assert usage.output_tokens > 0


def test_a_tool_and_the_answer_after_it(model, tools, wait):
    offered, calls = tools
    done = wait(ai.Agent(model, tools=offered).run("What is the weather in Paris?"))
    assert done.output
    assert len(calls) <= 1


@pytest.mark.parametrize("kind", ["ToolOutput", "NativeOutput", ""])
def test_an_output_type(model, kind, wait):
    output = getattr(ai, kind)(Weather) if kind else Weather
    done = wait(ai.Agent(model, output_type=output).run("Paris has 20 degrees."))
    assert (type(done.output), done.output.degrees) == (Weather, 20)


def test_an_output_that_the_prompt_asks_for(model, wait):
    """The server promises JSON, and only the prompt asks for the type: each field may be missing."""

    class Loose(BaseModel):
        city: object = None

    assert isinstance(wait(ai.Agent(model, output_type=ai.PromptedOutput(Loose)).run("Paris.")).output, Loose)


def test_tools_beside_an_output_type(model, tools, wait):
    offered, _ = tools
    done = wait(ai.Agent(model, tools=offered, output_type=Weather).run("What is the weather in Paris?"))
    assert isinstance(done.output, Weather)


def test_a_streamed_output_type(model, wait):
    async def ask():
        async with ai.Agent(model, output_type=Weather).run_stream("Paris has 20 degrees.") as reply:
            return [part async for part in reply.stream_output()]

    assert wait(ask())[-1].degrees == 20
