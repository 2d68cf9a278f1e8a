"""The package openai against a real server. `strict` checks every reply against the types of the package."""

from contextlib import closing
from importlib.util import find_spec
from typing import Literal

import pytest
from pydantic import BaseModel, Field

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
