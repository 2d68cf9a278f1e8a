"""Log-probabilities through HTTP: the numbers of the model, in the form that lm-evaluation-harness reads."""

import math

import pytest
import torch

from tests.server.conftest import events

PROMPT = [480, 481, 265, 464]  # "Once upon a time" without the beginning of text


def post(client, path="completions", **body):
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"]


def plain(client, ids):
    """float64 log-probabilities [T, V] of a plain forward pass of transformers."""
    from transformers import AutoModelForCausalLM

    from gencli.models.files.locate import find_local

    model = AutoModelForCausalLM.from_pretrained(find_local("tiny"), dtype=torch.float64)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def test_a_prompt_is_scored_as_a_plain_forward_does(tiny):
    asked = {"prompt": [PROMPT], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    (choice,) = post(tiny, **asked)
    found = choice["logprobs"]
    expected = plain(tiny, PROMPT)
    assert len(found["tokens"]) == len(PROMPT) + 1
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    for place in range(1, len(PROMPT)):
        value = float(expected[place - 1, PROMPT[place]])
        assert found["token_logprobs"][place] == pytest.approx(value, abs=1e-5)
        assert found["token_logprobs"][place] in found["top_logprobs"][place].values()
        best = max(found["top_logprobs"][place].values())
        assert best == pytest.approx(float(expected[place - 1].max()), abs=1e-5)
    assert found["token_logprobs"][-1] == pytest.approx(float(expected[-1].max()), abs=1e-5)
    assert choice["text"] == "".join(found["tokens"])
    assert (post(tiny, **asked)[0]["logprobs"]) == found  # the same from a warm cache
    chunks = events(tiny.post("/v1/completions", json={**asked, "stream": True}))
    assert (
        chunks[0]["choices"][0]["logprobs"]["token_logprobs"][: len(PROMPT)]
        == (found["token_logprobs"][: len(PROMPT)])
    )


def test_nothing_needs_to_be_generated(tiny):
    given = {"prompt": [PROMPT, PROMPT[:2]], "echo": True, "logprobs": 0}
    first, second = post(tiny, **given, max_tokens=0)
    whole = post(tiny, **given, max_tokens=1)
    assert first["logprobs"]["token_logprobs"] == whole[0]["logprobs"]["token_logprobs"][:-1]
    assert len(second["logprobs"]["tokens"]) == 2
    assert (first["text"], first["finish_reason"]) == ("Once upon a time", "length")


def test_an_end_of_text_has_its_entry(tiny):
    (choice,) = post(tiny, prompt=[PROMPT], echo=True, logprobs=1, max_tokens=1, allow_ids=[2, 1], seed=1)
    assert len(choice["logprobs"]["tokens"]) == len(PROMPT) + 1


def test_log_probabilities_do_not_depend_on_the_chain(tiny):
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "logprobs": True, "top_logprobs": 3,
            "max_tokens": 4, "seed": 3}  # fmt: skip
    cold = post(tiny, "chat/completions", **chat, temperature=0.01)[0]["logprobs"]["content"][0]
    warm = post(tiny, "chat/completions", **chat, temperature=2)[0]["logprobs"]["content"][0]
    assert cold["top_logprobs"] == warm["top_logprobs"]
    assert [len(entry["top_logprobs"]) for entry in (cold, warm)] == [3, 3]
    assert all(math.isfinite(each["logprob"]) for each in cold["top_logprobs"])


def test_tokens_can_be_named_by_their_ids(tiny):
    (choice,) = post(tiny, prompt="a", logprobs=1, max_tokens=2, return_tokens_as_token_ids=True)
    assert all(token.startswith("token_id:") for token in choice["logprobs"]["tokens"])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("completions", {"prompt": "a", "logprobs": 21}, "logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_the_number_of_alternatives_is_limited(fake, path, body, param):
    messages = {} if path == "completions" else {"messages": [{"role": "user", "content": "x"}]}
    error = fake.post(f"/v1/{path}", json={**messages, **body}).json()["error"]
    assert error["param"] == param
