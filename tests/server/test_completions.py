"""/v1/completions: prompts, samples, streams, log-probabilities, and fields of other servers."""

import math
import shutil
from itertools import product

import pytest
import torch

from gencli import LLM
from gencli.models.files.local_models import find_local
from gencli.server import serving
from tests.server.conftest import LETTERS, events, post, refusal, serve

TEXT = {"prompt": "Once upon a time", "seed": 7, "max_tokens": 20, "temperature": 0.8, "top_p": 0.9}
CHAT = {"messages": [{"role": "user", "content": "hi"}], "seed": 3, "max_tokens": 12, "allow_ids": LETTERS}


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", dtype="float32") as made:
        yield made


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


def test_several_prompts_and_samples_come_in_order(fake):
    texts = [LLM("fake").generate(["a", "b"], seed=1, n=2, max_tokens=5)]
    body = post(fake, "completions", prompt=["a", "b"], n=2, seed=1, max_tokens=5)
    assert [choice["text"] for choice in body["choices"]] == texts[0][0].texts + texts[0][1].texts
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (2, 20)
    ids = post(fake, "completions", prompt=[[97], [98]], n=2, seed=1, max_tokens=5)
    assert ids["choices"] == body["choices"]


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


IDS = [104, 105, 32, 106]
HI_J = {"prompt": "hi j", "seed": 42, "max_tokens": 8, "allow_ids": LETTERS}


def texts(client, **body):
    return [choice["text"] for choice in post(client, "completions", **body)["choices"]]


def test_a_prompt_is_the_same_in_every_form_that_there_is(fake):
    for prompt in ["hi j", IDS, ["hi j"], [IDS]]:
        assert texts(fake, **{**HI_J, "prompt": prompt}) == texts(fake, **HI_J), prompt
    for prompt in [[1, 2, "hi"], [[1, "hi"]], [1.5], [True], [999_999], [-1], [[]], [], {}, None, 5]:
        assert refusal(fake, "completions", **{**HI_J, "prompt": prompt})["param"] == "prompt", prompt
    both = {**HI_J, "prompt": ["hi j", IDS], "temperature": 0}
    assert texts(fake, **both) == texts(fake, **HI_J, temperature=0) * 2


def test_the_number_of_alternatives(fake):
    """Tokens go by their ids, as texts may be the same: all halves of characters are U+FFFD."""
    for given, few, most in [(0, 1, 1), (1, 1, 2), (5, 5, 6)]:
        (choice,) = post(fake, "completions", **HI_J, logprobs=given, return_tokens_as_token_ids=True)[
            "choices"
        ]
        found = choice["logprobs"]
        keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        assert [len(found[key]) for key in keys] == [8] * 4, given
        assert all(few <= len(top) <= most for top in found["top_logprobs"]), given
        for token, value, top in zip(
            found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
        ):
            assert top[token] == value <= 0, given


def test_a_stream_with_echo_has_the_text_and_the_offsets_of_a_reply(fake):
    whole = post(fake, "completions", **HI_J, logprobs=1, echo=True)["choices"][0]["logprobs"]
    chunks = events(fake.post("/v1/completions", json={**HI_J, "logprobs": 1, "echo": True, "stream": True}))
    parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    for key, values in whole.items():
        assert [value for part in parts for value in part[key]] == values
    (text,) = texts(fake, **HI_J, echo=True)
    assert "".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) == text


def test_echo_scores_the_prompt(fake):
    for logprobs, prompt in product([0, 1], ["hi j", IDS]):
        (choice,) = post(fake, "completions", **{**HI_J, "prompt": prompt}, echo=True, logprobs=logprobs)[
            "choices"
        ]
        found = choice["logprobs"]
        assert choice["text"] == "hi j" + texts(fake, **HI_J)[0], (prompt, logprobs)
        assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None), (prompt, logprobs)
        assert all(1 <= len(top) <= logprobs + 1 for top in found["top_logprobs"][1:]), (prompt, logprobs)
        assert [choice["text"][offset] for offset in found["text_offset"]] == [
            text[0] for text in found["tokens"]
        ], (prompt, logprobs)


def test_beams_of_two_prompts_are_those_of_each(tiny):
    for prompts in [["hi", "hi"], [IDS, IDS]]:
        body = {"prompt": prompts, "n": 2, "max_tokens": 5, "use_beam_search": True}
        first, second, third, fourth = texts(tiny, **body)
        assert (first, second) == (third, fourth), prompts
        assert first != second, prompts


def test_a_contrastive_search_is_the_same_as_a_stream(tiny):
    body = {"prompt": "Once upon a time", "contrastive_alpha": 0.6, "max_tokens": 8}
    chunks = events(tiny.post("/v1/completions", json={**body, "stream": True}))
    parts = [choice["text"] for chunk in chunks for choice in chunk["choices"]]
    assert ["".join(parts)] == texts(tiny, **body)


def test_usage_of_a_stream(fake):
    cases = [
        ({}, False),
        ({"include_usage": False}, False),
        ({"include_usage": None}, False),
        ({"include_usage": False, "continuous_usage_stats": False}, False),
        ({"include_usage": True, "continuous_usage_stats": False}, True),
    ]
    for options, has_usage in cases:
        body = {**HI_J, "stream": True, "stream_options": options}
        *chunks, last = events(fake.post("/v1/completions", json=body))
        assert all(chunk.get("usage") is None for chunk in chunks), options
        assert {"usage" in chunk for chunk in chunks} == {has_usage}, options
        assert (last["choices"] == []) is has_usage, options
        if has_usage:
            usage = last["usage"]
            counts = [usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")]
            assert counts == [4, 8, 12]


def test_options_of_a_stream_need_a_stream(fake):
    for options in [{"include_usage": True}, {"include_usage": None}, {"nothing": True}, 5]:
        assert refusal(fake, "completions", **HI_J, stream_options=options)["param"].startswith(
            "stream_options"
        ), options


def test_usage_counts_each_prompt_once(fake):
    usage = post(fake, "completions", **{**HI_J, "prompt": ["hi j", "abc"]}, n=3)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 48, 55)
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= 7


def test_a_bias_moves_the_draw(fake):
    for number, form in product([10.0, -100], ["object", "pairs"]):
        bias = {"97": number} if form == "object" else [[97, number]]
        text = texts(fake, **{**HI_J, "max_tokens": 30}, logit_bias=bias)[0]
        assert ("a" in text) is (number > 0), (form, number)
    text = texts(fake, **{**HI_J, "max_tokens": 30}, logit_bias=[[97, False], [98, False]])[0]
    assert not set(text) & set("ab")


def test_a_wrong_stop_is_refused(fake):
    for stop in ["", ["", "z"], [5], {"z": 1}]:
        assert refusal(fake, "completions", **HI_J, stop=stop)["param"] == "stop", stop


def test_what_a_stop_has_held_back_comes_at_the_end(fake):
    """A text that ends in what may begin a stop string is sent whole."""
    for stop in [["never here"], ["zz", "zy"], []]:
        body = {**HI_J, "max_tokens": 12, "logit_bias": {"122": 4}, "allow_ids": None}
        reply = fake.post("/v1/completions", json={**body, "stop": stop, "stream": True})
        parts = [choice for chunk in events(reply) for choice in chunk["choices"]]
        (whole,) = post(fake, "completions", **body, stop=stop)["choices"]
        assert "".join(part["text"] for part in parts) == whole["text"], stop
        assert parts[-1]["finish_reason"] == whole["finish_reason"], stop


def test_half_a_character_is_no_other_character(fake):
    """U+20AC in three bytes, cut after two: the text has one U+FFFD, the bytes of each token are its own."""
    euro = list("€".encode())
    allowed = {"allow_ids": [euro[0]], "max_tokens": 1, "prompt": "a", "logprobs": 0}
    (cut,) = post(fake, "completions", **allowed)["choices"]
    assert cut["text"] == "\ufffd"
    assert (cut["logprobs"]["tokens"], cut["finish_reason"]) == (["\ufffd"], "length")
    named = post(fake, "completions", **allowed, return_tokens_as_token_ids=True)["choices"][0]["logprobs"][
        "tokens"
    ]
    assert named == [f"token_id:{euro[0]}"]
    ids = post(fake, "completions", prompt=[[*euro]], max_tokens=0, echo=True)["choices"][0]
    assert ids["text"] == "€"


def test_ids_come_back_if_asked_for(fake):
    (choice,) = post(fake, "completions", **HI_J, return_token_ids=True)["choices"]
    assert bytes(choice["token_ids"]).decode() == choice["text"]
    chunks = events(fake.post("/v1/completions", json={**HI_J, "return_token_ids": True, "stream": True}))
    found = [token for chunk in chunks for part in chunk["choices"] for token in part.get("token_ids", [])]
    assert found == choice["token_ids"]


def test_offsets_are_those_of_the_text_whatever_its_tokens_are_called(tiny):
    body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 4, "logprobs": 0}
    for more in [{}, {"return_tokens_as_token_ids": True}, {"echo": True}]:
        (choice,) = post(tiny, "completions", **body, **more)["choices"]
        (named,) = post(tiny, "completions", **{**body, **more, "return_tokens_as_token_ids": False})[
            "choices"
        ]
        text, offsets = choice["text"], choice["logprobs"]["text_offset"]
        for token, offset in zip(named["logprobs"]["tokens"], offsets, strict=True):
            assert token.startswith("<|") or text[offset:].startswith(token), (more, token, offset)
        chunks = events(tiny.post("/v1/completions", json={**body, **more, "stream": True}))
        parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
        assert [offset for part in parts for offset in part["text_offset"]] == offsets, more


ONCE = [480, 481, 265, 464]  # "Once upon a time" without the beginning of text


def choices(client, path, **body):
    return post(client, path, **body)["choices"]


def plain(client, ids):
    """float64 log-probabilities [T, V] of a plain forward pass of transformers."""
    from transformers import AutoModelForCausalLM

    from gencli.models.files.local_models import find_local

    model = AutoModelForCausalLM.from_pretrained(find_local("tiny"), dtype=torch.float64)
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def test_a_prompt_is_scored_as_a_plain_forward_does(tiny):
    asked = {"prompt": [ONCE], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    (choice,) = choices(tiny, "completions", **asked)
    found = choice["logprobs"]
    expected = plain(tiny, ONCE)
    assert len(found["tokens"]) == len(ONCE) + 1
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    for place in range(1, len(ONCE)):
        value = float(expected[place - 1, ONCE[place]])
        assert found["token_logprobs"][place] == pytest.approx(value, abs=1e-5)
        assert found["token_logprobs"][place] in found["top_logprobs"][place].values()
        best = max(found["top_logprobs"][place].values())
        assert best == pytest.approx(float(expected[place - 1].max()), abs=1e-5)
    assert found["token_logprobs"][-1] == pytest.approx(float(expected[-1].max()), abs=1e-5)
    assert choice["text"] == "".join(found["tokens"])
    assert (choices(tiny, "completions", **asked)[0]["logprobs"]) == found  # the same from a warm cache
    chunks = events(tiny.post("/v1/completions", json={**asked, "stream": True}))
    assert (
        chunks[0]["choices"][0]["logprobs"]["token_logprobs"][: len(ONCE)]
        == (found["token_logprobs"][: len(ONCE)])
    )


def test_nothing_needs_to_be_generated(tiny):
    given = {"prompt": [ONCE, ONCE[:2]], "echo": True, "logprobs": 0}
    first, second = choices(tiny, "completions", **given, max_tokens=0)
    whole = choices(tiny, "completions", **given, max_tokens=1)
    assert first["logprobs"]["token_logprobs"] == whole[0]["logprobs"]["token_logprobs"][:-1]
    assert len(second["logprobs"]["tokens"]) == 2
    (other,) = choices(tiny, "completions", **{**given, "prompt": [ONCE], "n_predict": 0})
    assert other == first
    ended = {**given, "prompt": [ONCE], "max_tokens": 1, "allow_ids": [2, 1], "seed": 1}
    (choice,) = choices(tiny, "completions", **ended)  # an end of text has its entry
    assert len(choice["logprobs"]["tokens"]) == len(ONCE) + 1
    assert (first["text"], first["finish_reason"]) == ("Once upon a time", "length")


def test_log_probabilities_do_not_depend_on_the_chain(tiny):
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "logprobs": True, "top_logprobs": 3,
            "max_tokens": 4, "seed": 3}  # fmt: skip
    cold = choices(tiny, "chat/completions", **chat, temperature=0.01)[0]["logprobs"]["content"][0]
    warm = choices(tiny, "chat/completions", **chat, temperature=2)[0]["logprobs"]["content"][0]
    assert cold["top_logprobs"] == warm["top_logprobs"]
    assert [len(entry["top_logprobs"]) for entry in (cold, warm)] == [3, 3]
    assert all(math.isfinite(each["logprob"]) for each in cold["top_logprobs"])


PROCESSED = {"temperature": 0.5, "top_k": 3, "seed": 3, "max_tokens": 4}


def test_processed_log_probabilities_are_those_after_the_chain(tiny):
    chat = {
        "messages": [{"role": "user", "content": "Hello!"}],
        "logprobs": True,
        "top_logprobs": 5,
        **PROCESSED,
    }
    raw = choices(tiny, "chat/completions", **chat, return_banned_by=True)[0]["logprobs"]["content"]
    done = choices(tiny, "chat/completions", **chat, logprobs_mode="processed_logprobs")[0]["logprobs"][
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
    (choice,) = choices(tiny, "completions", prompt=[ONCE], logprobs=4, return_banned_by=True, **PROCESSED)
    found = choice["logprobs"]
    assert all(set(bans.values()) == {"top_k"} and len(bans) == 1 for bans in found["banned_by"])
    for bans, top in zip(found["banned_by"], found["top_logprobs"], strict=True):
        assert bans.keys() < top.keys()


def test_log_probabilities_of_prompts_stand_beside_each_choice(tiny):
    echoed = choices(tiny, "completions", prompt=[ONCE], echo=True, logprobs=2, max_tokens=1, seed=1)[0][
        "logprobs"
    ]
    for more in ({"n": 2, "max_tokens": 1}, {"max_tokens": 0}):
        for choice in choices(tiny, "completions", prompt=[ONCE], prompt_logprobs=2, **more):
            first, *rest = choice["prompt_logprobs"]
            assert (first, choice["logprobs"], len(rest)) == (None, None, len(ONCE) - 1)
            for place, entry in enumerate(rest, start=1):
                own = entry[str(ONCE[place])]
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
    for stream in [False, True]:
        assert refusal(fake, "completions", **HI_J, logprobs=21, stream=stream)["param"] == "logprobs", stream
        assert texts(fake, **HI_J), stream
    cases = [
        ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
    ]
    for path, body, param in cases:
        messages = [{"role": "user", "content": "x"}]
        assert refusal(fake, path, messages=messages, **body)["param"] == param, body


SHORT_CHAT = {"messages": [{"role": "user", "content": "a"}], "seed": 1, "max_tokens": 8}


def text_of(client, **body):
    body = {"prompt": "a", "seed": 1, "max_tokens": 4, **body}
    return post(client, "completions", **body)["choices"][0]["text"]


def test_a_limit_of_minus_one_is_none_or_that_of_the_server(fake):
    def usage_of(client, **body):
        return post(client, "completions", ignore_eos=True, **body)["usage"]["completion_tokens"]

    for name in ("max_tokens", "n_predict", "max_completion_tokens"):
        assert usage_of(fake, prompt="a" * 1000, **{name: -1}) == 1024 - 1000, name
    with serve(max_tokens=20) as client:
        assert usage_of(client, prompt="a", n_predict=-1) == 20


def test_the_tokens_of_a_text_get_its_bias_and_those_of_a_token_add_up(fake):
    assert set(text_of(fake, logit_bias={"bc": 100})) == {"b", "c"}
    assert set(text_of(fake, logit_bias=[["bc", 100], ["b", False]])) == {"c"}
    assert set(text_of(fake, logit_bias=[["bc", 100], ["b", False]], suppress_ids=[100])) == {"c"}

    assert set(text_of(fake, logit_bias=[[98, 70], [99, 90]])) == {"c"}
    assert set(text_of(fake, logit_bias=[[98, 70], [99, 90], [98, 60]])) == {"b"}


def test_a_beam_search_with_temperature_0_is_one(fake):
    for temperature in (0, 1):
        search = {"use_beam_search": True, "n": 2, "allow_ids": LETTERS}
        assert text_of(fake, **search, temperature=temperature) == text_of(fake, **search), temperature


def test_reasoning_can_be_left_out(fake):
    body = {**SHORT_CHAT, "constrain_after": "ab", "choice": ["yes", "no"], "max_tokens": 900}
    body["logit_bias"] = {"97": 20, "98": 20}
    whole = post(fake, "chat/completions", **body)
    for given in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        reply = post(fake, "chat/completions", **body, **given)
        assert reply["choices"][0]["message"]["content"] == whole["choices"][0]["message"]["content"]
        assert "reasoning_content" not in reply["choices"][0]["message"]
        assert reply["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    for chunk in events(fake.post("/v1/chat/completions", json={**body, **given, "stream": True})):
        assert "reasoning_content" not in chunk["choices"][0]["delta"]


def test_a_grammar_of_vllm_is_gbnf_or_lark(fake):
    for root in ("start:", "# a comment\nstart:", "root ::="):
        grammar = f'{root} "ab" | "ac"'
        for body in ({"guided_grammar": grammar}, {"structured_outputs": {"grammar": grammar}}):
            assert text_of(fake, **body) in ("ab", "ac"), body


def test_the_operator_is_told_once_what_has_no_effect_and_nothing_of_the_prompts():
    told = []
    with serve(draft="ngram", notice=told.append) as client:
        for prompt in ("secret", "hidden", "secret"):
            tree = "auto" if prompt == "hidden" else [[0], [1], [0, 0]]
            body = {"prompt": prompt, "draft_tree": tree, "max_tokens": 2}
            body |= {"xtc_probability": 0.5, "xtc_threshold": 0.6}
            assert client.post("/v1/completions", json=body).status_code == 200
    xtc, tree = told
    assert tree == "`draft_tree` has no effect, drafts are chains: fake:258:0 takes no trees."
    assert xtc.startswith("xtc has a threshold of 0.6")
    assert not any(prompt in text for text in told for prompt in ("secret", "hidden"))


def test_requests_cannot_fill_the_log(monkeypatch):
    monkeypatch.setattr(serving, "_MAX_NOTICES", 3)
    told = []
    with serve(notice=told.append) as client:
        for number in range(5):
            xtc = {"xtc_probability": 0.5, "xtc_threshold": 0.6 + number / 100}
            body = {"prompt": "a", "max_tokens": 1, **xtc}
            assert client.post("/v1/completions", json=body).status_code == 200
    assert len(told) == 3
