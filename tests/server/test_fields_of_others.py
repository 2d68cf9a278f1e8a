"""What fields of other servers do: limits of -1, biases of texts, searches, reasoning, tokens."""

import pytest

from tests.server.conftest import LETTERS, events, serve

CHAT = {"messages": [{"role": "user", "content": "a"}], "seed": 1, "max_tokens": 8}


def text_of(client, **body):
    reply = client.post("/v1/completions", json={"prompt": "a", "seed": 1, "max_tokens": 4, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def usage_of(client, **body):
    reply = client.post("/v1/completions", json={"ignore_eos": True, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", ["max_tokens", "n_predict", "max_completion_tokens"])
def test_a_limit_of_minus_one_is_none(fake, name):
    assert usage_of(fake, prompt="a" * 1000, **{name: -1}) == 1024 - 1000


def test_a_limit_of_minus_one_is_that_of_the_server():
    with serve(max_tokens=20) as client:
        assert usage_of(client, prompt="a", n_predict=-1) == 20


def test_a_prompt_is_scored_whatever_the_limit_is_called(fake):
    for name in ("max_tokens", "n_predict"):
        body = {"prompt": "abc", "echo": True, "logprobs": 0, name: 0}
        reply = fake.post("/v1/completions", json=body)
        assert reply.json()["choices"][0]["text"] == "abc", name


def test_the_tokens_of_a_text_get_its_bias(fake):
    assert set(text_of(fake, logit_bias={"bc": 100})) == {"b", "c"}
    assert set(text_of(fake, logit_bias=[["bc", 100], ["b", False]])) == {"c"}
    assert set(text_of(fake, logit_bias=[["bc", 100], ["b", False]], suppress_ids=[100])) == {"c"}


def test_the_biases_of_a_token_add_up(fake):
    assert set(text_of(fake, logit_bias=[[98, 70], [99, 90]])) == {"c"}
    assert set(text_of(fake, logit_bias=[[98, 70], [99, 90], [98, 60]])) == {"b"}


def test_a_beam_search_with_temperature_0_is_one(fake):
    for temperature in (0, 1):
        search = {"use_beam_search": True, "n": 2, "allow_ids": LETTERS}
        assert text_of(fake, **search, temperature=temperature) == text_of(fake, **search), temperature


def test_reasoning_can_be_left_out(fake):
    body = {**CHAT, "constrain_after": "ab", "choice": ["yes", "no"], "max_tokens": 900}
    body["logit_bias"] = {"97": 20, "98": 20}
    whole = fake.post("/v1/chat/completions", json=body).json()
    for given in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        reply = fake.post("/v1/chat/completions", json={**body, **given}).json()
        assert reply["choices"][0]["message"]["content"] == whole["choices"][0]["message"]["content"]
        assert "reasoning_content" not in reply["choices"][0]["message"]
        assert reply["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    for chunk in events(fake.post("/v1/chat/completions", json={**body, **given, "stream": True})):
        assert "reasoning_content" not in chunk["choices"][0]["delta"]


@pytest.mark.parametrize("root", ["start:", "# a comment\nstart:", "root ::="])
def test_a_grammar_of_vllm_is_gbnf_or_lark(fake, root):
    grammar = f'{root} "ab" | "ac"'
    for body in ({"guided_grammar": grammar}, {"structured_outputs": {"grammar": grammar}}):
        assert text_of(fake, **body) in ("ab", "ac"), body


def tokens(client, **body):
    reply = client.post("/tokenize", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["tokens"]


def test_special_tokens_are_text_without_parse_special(tiny):
    bos = tiny.get("/tokenizer_info").json()["bos_token"]
    for key in ("content", "prompt"):
        plain = {key: f"a{bos}b", "add_special_tokens": False}
        assert tokens(tiny, **plain)[1] == tokens(tiny, prompt="")[0], key
        assert tokens(tiny, **plain, parse_special=True) == tokens(tiny, **plain), key
        ids = tokens(tiny, **plain, parse_special=False)
        assert tokens(tiny, prompt="")[0] not in ids, key
        assert tiny.post("/detokenize", json={"tokens": ids}).json()["prompt"] == f"a{bos}b", key


def test_a_conversation_is_tokenized_as_a_chat_sends_it(tiny):
    for given in ({}, {"add_generation_prompt": False}, {"continue_final_message": True}):
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
        body = {"messages": messages, **given}
        reply = tiny.post("/v1/chat/completions", json={**body, "max_tokens": 1, "return_token_ids": True})
        assert tokens(tiny, **body, chat_template=None) == reply.json()["prompt_token_ids"], given


def test_wrong_fields_of_tokenize_are_named(tiny):
    messages = [{"role": "user", "content": "hi"}]
    for body, param in [
        ({"messages": messages, "parse_special": False}, "parse_special"),
        ({"messages": messages, "continue_final_message": True}, "continue_final_message"),
        ({"content": "a", "parse_special": "no"}, "parse_special"),
        ({"content": "a", "chat_template": "x"}, "chat_template"),
    ]:
        reply = tiny.post("/tokenize", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body
