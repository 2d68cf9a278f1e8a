"""dspy on a real model: predictions by each adapter, a chain of thought, typed outputs, tools, streams.

A small model writes the form of an adapter only if it has to, so a schema, a regex or tools are asked for.
"""

import os
from functools import partial
from typing import Literal

import pytest


@pytest.fixture(scope="module")
def dspy(tmp_path_factory):
    os.environ["DSPY_CACHEDIR"] = str(tmp_path_factory.mktemp("dspy"))  # read when it is imported
    return pytest.importorskip("dspy")


@pytest.fixture(scope="module", params=["chat", "responses"])
def model(dspy, smol, request):
    return dspy.LM("openai/smol", api_base=smol.url, api_key="any", model_type=request.param, cache=False)


def test_a_model_alone(model):
    (answer,) = model("What is the capital of France?")
    assert answer


def schema(**properties):
    """What makes a small model write what an adapter reads; dspy hands it on."""
    value = {"type": "object", "properties": properties, "required": [*properties]}
    value["additionalProperties"] = False
    return {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": value}}


@pytest.fixture(scope="module")
def judge(dspy):
    class Judge(dspy.Signature):
        """Say whether the sentence is kind."""

        sentence: str = dspy.InputField()
        kind: Literal["kind", "unkind"] = dspy.OutputField()
        score: int = dspy.OutputField()

    return Judge


@pytest.fixture(scope="module")
def declared(dspy, smol):
    """Make a model of a provider of which dspy knows that it takes tools and schemas."""
    access = dspy.lm15.AccessPolicy(provider="gencli", env_keys=("GENCLI_API_KEY",), base_url=smol.url)
    provider = dspy.lm15.ProviderDefinition.chat(access, compat=dspy.lm15.OpenAIChatCompat())
    support = dspy.lm15.ModelSupport(function_calling=True, response_schema=True)
    dspy.lm15.register_provider(provider, supports=support)
    yield partial(dspy.LM, "gencli/smol", api_key="any", cache=False)
    dspy.lm15.unregister_provider("gencli")


def weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather in a city."""
    return f"It rains in {city}."


# A field, and the end.
FORMS = {
    "ChatAdapter": (r"\[\[ ## {name} ## \]\]\n{value}\n\n", r"\[\[ ## completed ## \]\]"),
    "XMLAdapter": (r"<{name}>\n{value}\n</{name}>\n", ""),
}
WORDS = "[a-z ]{1,20}"


@pytest.fixture(scope="module", params=FORMS)
def written(dspy, smol, request):
    """Make a context whose model writes these fields in the form of the adapter."""

    def context(**fields):
        form, end = FORMS[request.param]
        regex = "".join(form.format(name=name, value=value) for name, value in fields.items())
        model = dspy.LM("openai/smol", api_base=smol.url, api_key="any", cache=False, regex=regex + end)
        adapter = getattr(dspy, request.param)(use_json_adapter_fallback=False)
        return dspy.context(lm=model, adapter=adapter)

    return context


def test_a_prediction_in_the_form_of_an_adapter(dspy, written, judge):
    with written(kind="(kind|unkind)", score="[0-9]"):
        found = dspy.Predict(judge)(sentence="You are lovely.")
    assert found.kind in ("kind", "unkind")
    assert 0 <= found.score <= 9


def test_an_agent_in_the_form_of_an_adapter(dspy, written):
    tool = {"next_tool_name": "weather", "next_tool_args": r'\{"city": "(Paris|Rome)"\}'}
    with written(next_thought=WORDS, **tool, reasoning=WORDS, answer=WORDS):
        agent = dspy.ReAct("question -> answer", tools=[weather], max_iters=1)
        found = agent(question="What is the weather in Paris?")
    city = found.trajectory["tool_args_0"]["city"]
    assert found.trajectory["observation_0"] == f"It rains in {city}."
    assert found.answer


def test_a_stream_in_the_form_of_an_adapter(dspy, written, wait):
    async def ask():
        listener = dspy.streaming.StreamListener(signature_field_name="answer")
        ask = dspy.streamify(dspy.ChainOfThought("question -> answer"), stream_listeners=[listener])
        return [item async for item in ask(question="What is the weather in Paris?")]

    with written(reasoning=WORDS, answer=WORDS):
        *chunks, found = wait(ask())
    assert "".join(chunk.chunk for chunk in chunks).strip() == found.answer
    assert chunks[-1].is_last_chunk


def test_a_schema_of_the_signature(dspy, declared, judge):
    with dspy.context(lm=declared(), adapter=dspy.JSONAdapter()):
        found = dspy.Predict(judge)(sentence="You are lovely.")
    assert found.kind in ("kind", "unkind")
    assert isinstance(found.score, int)


@pytest.mark.parametrize("adapter", ["ChatAdapter", "XMLAdapter", "JSONAdapter"])
def test_native_tool_calls(dspy, declared, adapter):
    class Ask(dspy.Signature):
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    model = declared(tool_choice="required", parallel_tool_calls=False)
    with dspy.context(lm=model, adapter=getattr(dspy, adapter)(use_native_function_calling=True)):
        found = dspy.Predict(Ask)(question="What is the weather in Paris?", tools=[dspy.Tool(weather)])
    (call,) = found.calls.tool_calls
    assert call.execute() == f"It rains in {call.args['city']}."


def test_an_agent_with_native_tool_calls(dspy, declared):
    model = declared(tool_choice="required", parallel_tool_calls=False)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        agent = dspy.ReActV2("question -> answer", tools=[weather], max_iters=1)
        found = agent(question="What is the weather in Paris?")
    assert found.answer
    (result,) = found.history.messages[0]["tool_calls"].tool_call_results.tool_call_results
    assert not result.is_error


def test_a_prediction_with_types(dspy, smol, judge):
    form = schema(kind={"enum": ["kind", "unkind"]}, score={"type": "integer", "minimum": 0, "maximum": 9})
    model = dspy.LM("openai/smol", api_base=smol.url, api_key="any", cache=False, response_format=form)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter(), track_usage=True):
        found = dspy.Predict(judge)(sentence="You are lovely.")
    assert found.kind in ("kind", "unkind")
    assert 0 <= found.score <= 9
    (usage,) = found.get_lm_usage().values()
    assert usage["completion_tokens"] > 0


def test_a_chain_of_thought_without_waiting(dspy, smol, wait):
    form = schema(reasoning={"type": "string", "maxLength": 40}, answer={"type": "integer"})
    model = dspy.LM("openai/smol", api_base=smol.url, api_key="any", cache=False, response_format=form)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
        found = wait(dspy.ChainOfThought("question -> answer: int").acall(question="What is 2 + 2?"))
    assert isinstance(found.answer, int)
    assert isinstance(found.reasoning, str)
