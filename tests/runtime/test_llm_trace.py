"""Explanations of tokens in Python: the records of `gencli run --trace`, beside the text they explain."""

import pytest

from gencli import LLM, SamplingParams, Token
from gencli.errors import UsageError

PARAMS = SamplingParams(temperature=1.6, top_k=6, repetition_penalty=1.2, max_tokens=10, seed=4, trace=3)


@pytest.fixture(scope="module")
def fake():
    with LLM("fake", max_batch=3) as made:
        yield made


def test_a_stream_has_an_explanation_for_each_token(fake):
    tokens = [event for event in fake.stream("the cat", PARAMS) if isinstance(event, Token)]
    assert tokens
    assert all([view.token for view in event.views] == list(event.ids) for event in tokens)


def test_what_is_no_number_of_ids_and_what_draws_no_tokens_has_no_trace(fake):
    for value in (0, -1, 101, 10**90, True, "3", 2.5, float("nan"), [1]):
        with pytest.raises(UsageError, match="trace is "):
            SamplingParams(trace=value)
    for values, said in (({"beams": 2}, "beams 2"), ({"finish_open": True, "json": True}, "finish_open")):
        with pytest.raises(UsageError, match=f"trace and {said} do not go together"):
            fake.generate("a", trace=2, **values)
    with pytest.raises(UsageError, match="`trace` has no part in these scores"):
        fake.score("abc", trace=3)
