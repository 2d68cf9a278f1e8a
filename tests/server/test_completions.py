"""/v1/completions and /v1/chat/completions through HTTP: the texts of the library, streamed or not."""

import shutil

import pytest

from gencli import LLM
from gencli.models.files.local_models import find_local
from tests.server.conftest import LETTERS, events, serve

TEXT = {"prompt": "Once upon a time", "seed": 7, "max_tokens": 20, "temperature": 0.8, "top_p": 0.9}


CHAT = {"messages": [{"role": "user", "content": "hi"}], "seed": 3, "max_tokens": 12, "allow_ids": LETTERS}


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32") as made:
        yield made


def post(client, path, **body):
    reply = client.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_the_answer_is_that_of_the_library(tiny, llm):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
    expected = llm.chat(messages, seed=5, max_tokens=30)
    body = post(tiny, "chat/completions", messages=messages, seed=5, max_tokens=30)
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert choice["logprobs"] is None
    assert body["object"] == "chat.completion"


def test_a_stream_is_the_same_text(fake):
    whole = post(fake, "chat/completions", **CHAT)["choices"][0]
    wanted = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = events(fake.post("/v1/chat/completions", json={**CHAT, **wanted}))
    *parts, usage = chunks
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in parts]
    assert "".join(deltas) == whole["message"]["content"]
    assert parts[-1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert [chunk["choices"][0]["finish_reason"] for chunk in parts[:-1]] == [None] * (len(parts) - 1)
    assert all(chunk["usage"] is None for chunk in parts)
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 12)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


def test_a_stream_without_usage_has_no_such_key(fake):
    chunks = events(fake.post("/v1/completions", json={"prompt": "a", "max_tokens": 3, "stream": True}))
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "length"


def test_several_prompts_and_samples_come_in_order(fake):
    texts = [LLM("fake").generate(["a", "b"], seed=1, n=2, max_tokens=5)]
    body = post(fake, "completions", prompt=["a", "b"], n=2, seed=1, max_tokens=5)
    assert [choice["text"] for choice in body["choices"]] == texts[0][0].texts + texts[0][1].texts
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (2, 20)
    ids = post(fake, "completions", prompt=[[97], [98]], n=2, seed=1, max_tokens=5)
    assert ids["choices"] == body["choices"]


def test_echo_puts_the_prompt_before_the_text(fake):
    given = {"prompt": "abc", "seed": 1, "max_tokens": 4}
    plain = post(fake, "completions", **given)["choices"][0]["text"]
    assert post(fake, "completions", **given, echo=True)["choices"][0]["text"] == "abc" + plain
    chunks = events(fake.post("/v1/completions", json={**given, "echo": True, "stream": True}))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abc" + plain


def test_a_stop_ends_the_text_and_is_named(fake):
    given = {"prompt": "a", "seed": 2, "allow_ids": LETTERS, "max_tokens": 60}
    text = post(fake, "completions", **given)["choices"][0]["text"]
    stop = text[10:12]
    choice = post(fake, "completions", **given, stop=[stop])["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")
    assert choice["stop_reason"] == stop
    choice = post(fake, "completions", **given, stop=stop, include_stop_str_in_output=True)["choices"][0]
    assert choice["text"] == text[: text.index(stop)] + stop


def test_defaults_are_those_of_openai(fake):
    assert post(fake, "completions", prompt="a", ignore_eos=True)["usage"]["completion_tokens"] == 16
    texts = {post(fake, "completions", prompt="a")["choices"][0]["text"] for _ in range(4)}
    assert len(texts) > 1  # each request has a seed of its own


def test_thinking_that_the_prompt_has_ended_is_none(fake):
    structure = {"constrain_after": "</t>", "choice": ["yes", "no"]}
    prompts = ["<t></t>\n", "a"]
    body = {"prompt": prompts, **structure, "logit_bias": {"97": 99}, "max_tokens": 9, "n": 2}
    texts = [choice["text"] for choice in post(fake, "completions", **body)["choices"]]
    assert set(texts[:2]) <= {"yes", "no"}
    assert texts[2:] == ["", ""]  # all of it is thinking
    for chunk in events(fake.post("/v1/completions", json={**body, "prompt": prompts[0], "stream": True})):
        assert "reasoning_content" not in chunk["choices"][0]


def test_thinking_is_reasoning_content(fake):
    body = {**CHAT, "constrain_after": "ab", "choice": ["yes", "no"], "max_tokens": 900}
    del body["allow_ids"]
    body["logit_bias"] = {"97": 20, "98": 20}
    message = post(fake, "chat/completions", **body)["choices"][0]["message"]
    assert message["content"] in ("yes", "no")
    assert "ab" not in message["reasoning_content"]
    chunks = events(fake.post("/v1/chat/completions", json={**body, "stream": True}))
    joined = {"content": "", "reasoning_content": ""}
    for chunk in chunks:
        for key in joined:
            joined[key] += chunk["choices"][0]["delta"].get(key, "")
    assert joined == {key: message[key] for key in joined}


def test_a_preset_by_name_is_a_layer_below_the_body(fake):
    stages = fake.post("/v1/chain", json={"preset": "story", "top_k": 7}).json()["stages"]
    found = {stage["name"]: stage for stage in stages}
    assert found["top_k"]["values"]["k"] == 7
    assert found["top_k"]["origins"] == {"k": "request top_k"}
    assert found["min_p"]["origins"]["p"].startswith("preset creative:")


def test_a_conversation_is_drawn_as_in_a_chat_where_the_request_asks_for_it(fake):
    def origins(**body):
        body = {"messages": [{"role": "user", "content": "Hi"}], **body}
        stages = fake.post("/v1/chain", json=body).json()["stages"]
        return {stage["name"]: origin for stage in stages for origin in stage["origins"].values()}

    assert origins() == {}
    of_chat = dict.fromkeys(("temperature", "top_k", "top_p", "min_p"), "default of chat")
    assert origins(chat_draw=True) == of_chat
    assert origins(chat_draw=True, top_k=7, min_p=0.1) == {
        **of_chat,
        "top_k": "request top_k",
        "min_p": "request min_p",
    }
    assert origins(chat_draw=True, mirostat=2)["temperature"] == "default of chat"
    refused = fake.post("/v1/chain", json={"prompt": "Hi", "chat_draw": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "chat_draw")


def test_an_answer_goes_on_with_the_last_message(tiny):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once upon a "}]
    given = {"seed": 4, "max_tokens": 9, "return_token_ids": True}
    chat = post(tiny, "chat/completions", messages=messages, continue_final_message=True, **given)
    text = "<|bos|><|user|>Hi<|end|><|assistant|>Once upon a "
    (choice,) = post(tiny, "completions", prompt=text, add_special_tokens=False, **given)["choices"]
    assert chat["prompt_token_ids"] == choice["prompt_token_ids"]
    assert chat["choices"][0]["message"]["content"] == choice["text"]
    several = {"prompt": ["a", "b"], "stream": True, "n": 2, **given}
    chunks = events(tiny.post("/v1/completions", json=several))
    firsts = [chunk["choices"][0] for chunk in chunks if "prompt_token_ids" in chunk["choices"][0]]
    assert sorted(first["index"] for first in firsts) == [0, 1, 2, 3]
    for body in ({"add_generation_prompt": True}, {"messages": messages[:1]}):
        sent = {"messages": messages, "continue_final_message": True, **body}
        error = tiny.post("/v1/chat/completions", json=sent).json()["error"]
        assert error["param"] == "continue_final_message"


def test_a_hole_is_filled_with_the_tokens_that_the_tokenizer_has(tmp_path):
    folder = tmp_path / "coder"
    shutil.copytree(find_local("tiny"), folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text()
        for part, role in (("prefix", "system"), ("suffix", "user"), ("middle", "assistant")):
            text = text.replace(f"<|{role}|>", f"<|fim_{part}|>")
        (folder / name).write_text(text)
    with serve(model=str(folder), dtype="float32") as client:
        body = {
            "prompt": "Once upon", "suffix": " end.", "seed": 1, "max_tokens": 4, "return_token_ids": True,
        }  # fmt: skip
        (choice,) = post(client, "completions", **body)["choices"]
        encode = client.serving.tokenizer.encode
        around = [encode(text, special=False) for text in ("Once upon", " end.")]
        assert choice["prompt_token_ids"] == [0, 3, *around[0], 4, *around[1], 5]


def test_prefixes_are_shared_within_a_salt(tiny):
    def cached(**body):
        asked = {"prompt": "A text of many tokens, alone.", "max_tokens": 1, "seed": 1, **body}
        return post(tiny, "completions", **asked)["usage"]["prompt_tokens_details"]["cached_tokens"]

    found = [cached(cache_salt=salt, priority=place) for place, salt in enumerate(("x", "x", "y", "y"))]
    assert [count > 0 for count in found] == [False, True, False, True]
