"""Cases of completions in suites of other servers: prompts, seeds, samples, streams, log-probabilities."""

from itertools import product

from tests.server.conftest import LETTERS, events

IDS = [104, 105, 32, 106]


TEXT = {"prompt": "hi j", "seed": 42, "max_tokens": 8, "allow_ids": LETTERS}


def post(client, **body):
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def texts(client, **body):
    return [choice["text"] for choice in post(client, **body)["choices"]]


def refusal(client, **body):
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def test_a_prompt_is_the_same_in_every_form(fake):
    for prompt in ["hi j", IDS, ["hi j"], [IDS]]:
        assert texts(fake, **{**TEXT, "prompt": prompt}) == texts(fake, **TEXT), prompt
    both = {**TEXT, "prompt": ["hi j", IDS], "temperature": 0}
    assert texts(fake, **both) == texts(fake, **TEXT, temperature=0) * 2


def test_no_other_form_is_a_prompt(fake):
    for prompt in [[1, 2, "hi"], [[1, "hi"]], [1.5], [True], [999_999], [-1], [[]], [], {}, None, 5]:
        assert refusal(fake, **{**TEXT, "prompt": prompt})["param"] == "prompt", prompt


def test_a_prompt_that_fills_the_context_is_refused(fake):
    for stream, prompt in product([False, True], ["a" * 1024, [97] * 1024]):
        error = refusal(fake, prompt=prompt, stream=stream)
        assert error["code"] == "context_length_exceeded", (prompt, stream)
        assert "1024" in error["message"], (prompt, stream)


def test_the_number_of_alternatives(fake):
    """Tokens go by their ids, as texts may be the same: all halves of characters are U+FFFD."""
    for given, few, most in [(0, 1, 1), (1, 1, 2), (5, 5, 6)]:
        (choice,) = post(fake, **TEXT, logprobs=given, return_tokens_as_token_ids=True)["choices"]
        found = choice["logprobs"]
        keys = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        assert [len(found[key]) for key in keys] == [8] * 4, given
        assert all(few <= len(top) <= most for top in found["top_logprobs"]), given
        for token, value, top in zip(
            found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
        ):
            assert top[token] == value <= 0, given


def test_after_too_many_alternatives_the_server_goes_on(fake):
    for stream in [False, True]:
        assert refusal(fake, **TEXT, logprobs=21, stream=stream)["param"] == "logprobs", stream
        assert texts(fake, **TEXT), stream


def test_offsets_of_a_stream_go_on(fake):
    whole = post(fake, **TEXT, logprobs=1, echo=True)["choices"][0]["logprobs"]
    chunks = events(fake.post("/v1/completions", json={**TEXT, "logprobs": 1, "echo": True, "stream": True}))
    parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    for key, values in whole.items():
        assert [value for part in parts for value in part[key]] == values


def test_echo_scores_the_prompt(fake):
    for logprobs, prompt in product([0, 1], ["hi j", IDS]):
        (choice,) = post(fake, **{**TEXT, "prompt": prompt}, echo=True, logprobs=logprobs)["choices"]
        found = choice["logprobs"]
        assert choice["text"].startswith("hi j"), (prompt, logprobs)
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
        body = {**TEXT, "stream": True, "stream_options": options}
        *chunks, last = events(fake.post("/v1/completions", json=body))
        assert all(chunk.get("usage") is None for chunk in chunks), options
        assert (last["choices"] == []) is has_usage, options
        if has_usage:
            usage = last["usage"]
            counts = [usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")]
            assert counts == [4, 8, 12]


def test_options_of_a_stream_need_a_stream(fake):
    for options in [{"include_usage": True}, {"include_usage": None}, {"nothing": True}, 5]:
        assert refusal(fake, **TEXT, stream_options=options)["param"].startswith("stream_options"), options


def test_usage_counts_each_prompt_once(fake):
    usage = post(fake, **{**TEXT, "prompt": ["hi j", "abc"]}, n=3)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 48, 55)
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= 7


def test_a_bias_moves_the_draw(fake):
    for number, form in product([10.0, -100], ["object", "pairs"]):
        bias = {"97": number} if form == "object" else [[97, number]]
        text = texts(fake, **{**TEXT, "max_tokens": 30}, logit_bias=bias)[0]
        assert ("a" in text) is (number > 0), (form, number)
    text = texts(fake, **{**TEXT, "max_tokens": 30}, logit_bias=[[97, False], [98, False]])[0]
    assert not set(text) & set("ab")


def test_a_wrong_stop_is_refused(fake):
    for stop in ["", ["", "z"], [5], {"z": 1}]:
        assert refusal(fake, **TEXT, stop=stop)["param"] == "stop", stop


def test_what_a_stop_has_held_back_comes_at_the_end(fake):
    """A text that ends in what may begin a stop string is sent whole."""
    for stop in [["never here"], ["zz", "zy"], []]:
        body = {**TEXT, "max_tokens": 12, "logit_bias": {"122": 4}, "allow_ids": None}
        reply = fake.post("/v1/completions", json={**body, "stop": stop, "stream": True})
        parts = [choice for chunk in events(reply) for choice in chunk["choices"]]
        (whole,) = post(fake, **body, stop=stop)["choices"]
        assert "".join(part["text"] for part in parts) == whole["text"], stop
        assert parts[-1]["finish_reason"] == whole["finish_reason"], stop


def test_half_a_character_is_no_other_character(fake):
    """U+20AC in three bytes, cut after two: the text has one U+FFFD, the bytes of each token are its own."""
    euro = list("€".encode())
    allowed = {"allow_ids": [euro[0]], "max_tokens": 1, "prompt": "a", "logprobs": 0}
    (cut,) = post(fake, **allowed)["choices"]
    assert cut["text"] == "\ufffd"
    assert (cut["logprobs"]["tokens"], cut["finish_reason"]) == (["\ufffd"], "length")
    named = post(fake, **allowed, return_tokens_as_token_ids=True)["choices"][0]["logprobs"]["tokens"]
    assert named == [f"token_id:{euro[0]}"]
    ids = post(fake, prompt=[[*euro]], max_tokens=0, echo=True)["choices"][0]
    assert ids["text"] == "€"


def test_ids_come_back_if_asked_for(fake):
    (choice,) = post(fake, **TEXT, return_token_ids=True)["choices"]
    assert bytes(choice["token_ids"]).decode() == choice["text"]
    chunks = events(fake.post("/v1/completions", json={**TEXT, "return_token_ids": True, "stream": True}))
    found = [token for chunk in chunks for part in chunk["choices"] for token in part.get("token_ids", [])]
    assert found == choice["token_ids"]


def test_offsets_are_those_of_the_text_whatever_its_tokens_are_called(tiny):
    body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": 4, "logprobs": 0}
    for more in [{}, {"return_tokens_as_token_ids": True}, {"echo": True}]:
        (choice,) = post(tiny, **body, **more)["choices"]
        (named,) = post(tiny, **{**body, **more, "return_tokens_as_token_ids": False})["choices"]
        text, offsets = choice["text"], choice["logprobs"]["text_offset"]
        for token, offset in zip(named["logprobs"]["tokens"], offsets, strict=True):
            assert token.startswith("<|") or text[offset:].startswith(token), (more, token, offset)
        chunks = events(tiny.post("/v1/completions", json={**body, **more, "stream": True}))
        parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
        assert [offset for part in parts for offset in part["text_offset"]] == offsets, more
