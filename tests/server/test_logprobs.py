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

    from gencli.models.files.local_models import find_local

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


CHAIN = {"temperature": 0.5, "top_k": 3, "seed": 3, "max_tokens": 4}


def test_processed_log_probabilities_are_those_after_the_chain(tiny):
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "logprobs": True, "top_logprobs": 5, **CHAIN}
    raw = post(tiny, "chat/completions", **chat, return_banned_by=True)[0]["logprobs"]["content"]
    done = post(tiny, "chat/completions", **chat, logprobs_mode="processed_logprobs")[0]["logprobs"][
        "content"
    ]
    for before, after in zip(raw, done, strict=True):
        assert [each["banned_by"] for each in before["top_logprobs"]] == [None] * 3 + ["top_k"] * 2
        assert before["banned_by"] is None
        assert before["token"] == after["token"]
        kept = before["top_logprobs"][:3]
        assert [each["token"] for each in after["top_logprobs"]] == [each["token"] for each in kept]
        powers = [math.exp(2 * each["logprob"]) for each in kept]
        assert [math.exp(each["logprob"]) for each in after["top_logprobs"]] == pytest.approx(
            [power / sum(powers) for power in powers], abs=1e-5
        )
        assert "banned_by" not in after


def test_what_is_banned_is_named_in_completions_too(tiny):
    (choice,) = post(tiny, prompt=[PROMPT], logprobs=4, return_banned_by=True, **CHAIN)
    found = choice["logprobs"]
    assert all(set(bans.values()) == {"top_k"} and len(bans) == 1 for bans in found["banned_by"])
    for bans, top in zip(found["banned_by"], found["top_logprobs"], strict=True):
        assert bans.keys() < top.keys()


def test_log_probabilities_of_prompts_stand_beside_each_choice(tiny):
    echoed = post(tiny, prompt=[PROMPT], echo=True, logprobs=2, max_tokens=1, seed=1)[0]["logprobs"]
    for more in ({"n": 2, "max_tokens": 1}, {"max_tokens": 0}):
        for choice in post(tiny, prompt=[PROMPT], prompt_logprobs=2, **more):
            first, *rest = choice["prompt_logprobs"]
            assert (first, choice["logprobs"], len(rest)) == (None, None, len(PROMPT) - 1)
            for place, entry in enumerate(rest, start=1):
                own = entry[str(PROMPT[place])]
                assert own["logprob"] == echoed["token_logprobs"][place]
                assert own["decoded_token"] == echoed["tokens"][place]
                values = sorted((each["logprob"] for each in entry.values()), reverse=True)
                assert values[0] == max(echoed["top_logprobs"][place].values())
                ranks = sorted(each["rank"] for each in entry.values())
                assert ranks[:2] == [1, 2]
                assert own["rank"] in ranks
    body = {"messages": [{"role": "user", "content": "Hi"}], "prompt_logprobs": 0, "max_tokens": 1}
    reply = tiny.post("/v1/chat/completions", json={**body, "return_token_ids": True}).json()
    named = [next(iter(entry)) for entry in reply["prompt_logprobs"][1:]]
    assert named == [str(token) for token in reply["prompt_token_ids"][1:]]


def test_the_number_of_alternatives_is_limited(fake):
    cases = [
        ("completions", {"prompt": "a", "logprobs": 21}, "logprobs"),
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
    ]
    for path, body, param in cases:
        messages = {} if path == "completions" else {"messages": [{"role": "user", "content": "x"}]}
        error = fake.post(f"/v1/{path}", json={**messages, **body}).json()["error"]
        assert error["param"] == param, body
