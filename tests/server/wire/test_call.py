"""Bodies as calls: every field is applied, known to change nothing, or refused by name."""

import json

import pytest

from gencli.server.limits import CallLimits, check_call
from gencli.server.wire.call import read_call
from gencli.server.wire.errors import ApiError

MESSAGES = [{"role": "user", "content": "hi"}]


def completion(**body):
    return read_call({"prompt": "a", **body}, "completions")


def chat(**body):
    return read_call({"messages": MESSAGES, **body}, "chat")


def options(**body):
    return completion(**body).options.values


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"temperature": 0.5, "top_p": None, "user": "u"}, {"temperature": 0.5}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"n_predict": -1, "seed": -1}, {}),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, {"repetition_penalty": 1.1, "penalty_window": 64}),
        ({"stop_token_ids": [2], "include_stop_str_in_output": True}, {"stop_id": [2], "include_stop": True}),
        ({"logit_bias": {"5": -100}}, {"logit_bias": [[5, -100]]}),
        ({"logit_bias": [[5, False], ["a", 1.5]]}, {"logit_bias": [["a", 1.5]], "suppress_ids": [5]}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"json": True}),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
         {"json_schema": "{}"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"t_max_predict_ms": 1500}, {"max_time": 1.5}),
        ({"typical_p": 1.0, "mirostat": 0, "top_a": 0, "skip_special_tokens": True}, {}),
        ({"best_of": 2, "n": 2}, {"n": 2}),
        ({"best_of": 3, "n": 2}, {"n": 2, "best_of": 3}),
        ({"use_beam_search": True, "n": 2, "best_of": 4}, {"n": 2, "beams": 4}),
        ({"use_beam_search": False, "length_penalty": 1.0, "early_stopping": False}, {}),
        ({"stages": {"min_p": 0.1}, "chain": "temperature=0.5 | min_p=0.1"},
         {"stages": {"min_p": 0.1}, "chain": "temperature=0.5 | min_p=0.1"}),
        ({"guidance_scale": 2, "negative_prompt": "x"}, {"guidance": 2, "negative": "x"}),
    ],
)  # fmt: skip
def test_fields_are_options_under_their_names_here(body, expected):
    assert options(**body) == expected


@pytest.mark.parametrize(
    ("body", "param", "code", "message"),
    [
        ({"top_kk": 5}, "top_kk", "unknown_field", "There is no field 'top_kk'. Did you mean 'top_k'?"),
        ({"mirostat": 2}, "mirostat", "unsupported_value", "mirostat is 2, which this server cannot do."),
        ({"frequency": 1}, "frequency", "unknown_field", "It is a stage: write it under stages"),
        ({"dtype": "float16"}, "dtype", "unknown_field", "There is no field 'dtype'."),
        ({"chat_template": "x"}, "chat_template", "unknown_field", "There is no field 'chat_template'."),
        ({"grammar": "etc/passwd"}, "grammar", "invalid_value", "grammar names a file"),
        ({"tools": "tools.json"}, "tools", "invalid_value", "tools names a file"),
        ({"json_schema": "a.json"}, "json_schema", "invalid_value", "json_schema names a file"),
        ({"preset": "../x"}, "preset", "invalid_value", "a request can name no file"),
        ({"max_tokens": 3, "max_new_tokens": 4}, "max_new_tokens", "invalid_value", "set the same option"),
        ({"stream": 1}, "stream", "invalid_value", "stream has to be true or false."),
        ({"stream_options": {}}, "stream_options", "invalid_value", "stream_options needs stream = true."),
        ({"tool_choice": "auto"}, "tool_choice", "invalid_value", "tool_choice needs tools."),
        ({"logit_bias": {"a": 1}}, "logit_bias", "invalid_value", "has to be an object of token ids"),
        ({"response_format": {"type": "xml"}}, "response_format", "invalid_value", "has to be text, json"),
        ({"prompt": []}, "prompt", "invalid_value", "prompt has to be a text"),
        ({"prompt": [1, "a"]}, "prompt", "invalid_value", "prompt has to be a text"),
        ({"prompt": None}, "prompt", "missing_field", "The body needs prompt."),
        ({"logprobs": -1}, "logprobs", "invalid_value", "logprobs has to be a whole number from 0."),
        ({"messages": MESSAGES}, "messages", "unknown_field", "There is no field 'messages'."),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_followed_is_named(body, param, code, message):
    with pytest.raises(ApiError) as caught:
        completion(**body)
    error = caught.value
    assert (error.status, error.param, error.code) == (400, param, code)
    assert message in error.message


def test_lenient_drops_unknown_fields_and_says_which():
    call = read_call({"prompt": "a", "top_kk": 5, "top_k": 3}, "completions", is_lenient=True)
    assert (call.options.values, call.options.dropped) == ({"top_k": 3}, ("top_kk",))


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))],
)
def test_prompts_are_texts_or_ids(prompt, prompts):
    assert completion(prompt=prompt).prompts == prompts


def test_messages_keep_calls_and_join_parts():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    made = chat(messages=[
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
         "id": "m"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]).messages  # fmt: skip
    assert made[0] == {"role": "user", "content": "ab"}
    assert made[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert made[2]["tool_call_id"] == "c1"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user", "content": [{"type": "image_url"}]}], "messages[1].content"),
        ([{"role": "user", "content": "x", "contnet": 1}], "messages[0].contnet"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
    ],
)
def test_a_wrong_message_is_named(messages, param):
    with pytest.raises(ApiError) as caught:
        chat(messages=messages)
    assert caught.value.param == param


def test_no_template_comes_from_a_request():
    for body in ({"chat_template_kwargs": {"chat_template": "x"}}, {"chat_template": "x"}):
        with pytest.raises(ApiError, match="chat_template"):
            chat(**body)
    assert chat(chat_template_kwargs={"enable_thinking": False}).variables == {"enable_thinking": False}


def test_tools_are_text_and_their_choice_a_name():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    named = chat(tools=tools, tool_choice={"type": "function", "function": {"name": "f"}}).options.values
    assert (json.loads(named["tools"]), named["tool_choice"]) == (tools, "f")
    assert chat(tools=tools, tool_choice="none").options.values == {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 1000}, "n"),
        ({"prompt": ["a"] * 300}, "prompt"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": "x" * 1001}, "stop"),
        ({"logit_bias": {str(number): 1 for number in range(5000)}}, "logit_bias"),
        ({"guided_regex": "a" * (1 << 19)}, "guided_regex"),
        ({"grammar_timeout": 1e6}, "grammar_timeout"),
        ({"retries": 100}, "retries"),
    ],
)
def test_what_a_client_sizes_is_limited(body, param):
    with pytest.raises(ApiError) as caught:
        check_call(completion(**body), CallLimits())
    assert (caught.value.param, caught.value.code) == (param, "too_large")


def test_the_texts_of_a_call_are_limited_together():
    with pytest.raises(ApiError, match="has 25600 texts"):
        check_call(completion(prompt=["a"] * 200, n=128), CallLimits())


@pytest.mark.parametrize("body", [{"prompt": "a" * 70_000}, {"prompt": [1] * 70_000}])
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(body):
    with pytest.raises(ApiError) as caught:
        check_call(completion(**body), CallLimits(), context=1024)
    assert caught.value.code == "context_length_exceeded"


def test_whether_a_file_exists_cannot_be_asked(tmp_path, monkeypatch):
    """The same answer for a name of a file that there is and one that there is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("{}")
    said = [options(json_schema=name)["json_schema"] for name in ("there", "gone")]
    assert said[0].replace("there", "gone") == said[1]
    for name in (str(tmp_path / "there"), str(tmp_path / "gone")):
        assert json.loads(options(json_schema=name)["json_schema"])["type"] == "object"
    with pytest.raises(ApiError, match="names a file"):
        options(json_schema="gone.json")


def test_an_error_does_not_grow_with_what_it_quotes():
    with pytest.raises(ApiError) as caught:
        completion(**{"x" * 100_000: 1})
    assert len(json.dumps(caught.value.body)) < 3000
