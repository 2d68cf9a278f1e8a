"""dspy on a real model: predictions by each adapter, a chain of thought, typed outputs, tools, streams."""

import os
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


def test_a_prediction_with_types(dspy, smol):
    class Judge(dspy.Signature):
        """Say whether the sentence is kind."""

        sentence: str = dspy.InputField()
        kind: Literal["kind", "unkind"] = dspy.OutputField()
        score: int = dspy.OutputField()

    form = schema(kind={"enum": ["kind", "unkind"]}, score={"type": "integer", "minimum": 0, "maximum": 9})
    model = dspy.LM("openai/smol", api_base=smol.url, api_key="any", cache=False, response_format=form)
    with dspy.context(lm=model, adapter=dspy.JSONAdapter(), track_usage=True):
        found = dspy.Predict(Judge)(sentence="You are lovely.")
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
