"""Bodies as calls: every field is applied, known to change nothing, or refused by name."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from gencli.server.access import CallLimits, Conditions, check_call
from gencli.server.wire_calls import read_call
from gencli.server.wire_fields import ApiError
from tests.server.conftest import post, refusal, serve

MESSAGES = [{"role": "user", "content": "hi"}]


def completion(**body):
    return read_call({"prompt": "a", **body}, "completions")


def chat(**body):
    return read_call({"messages": MESSAGES, **body}, "chat")


def options(**body):
    return completion(**body).options.values


def test_fields_are_options_under_their_names_here():
    cases = [
        ({"temperature": 0.5, "top_p": None, "user": "u"}, {"temperature": 0.5}),
        ({"max_completion_tokens": 5}, {"max_tokens": 5}),
        ({"n_predict": -1, "seed": -1}, {"max_tokens": -1}),
        ({"max_tokens": -1, "max_completion_tokens": -1}, {"max_tokens": -1}),
        ({"sampler_seed": -1, "sampler_order": None, "nsigma": 1}, {"top_n_sigma": 1}),
        ({"repeat_penalty": 1.1, "repeat_last_n": 64}, {"repetition_penalty": 1.1, "penalty_window": 64}),
        ({"stop_token_ids": [2], "include_stop_str_in_output": True}, {"stop_id": [2], "include_stop": True}),
        ({"logit_bias": {"5": -100}}, {"logit_bias": [[5, -100]]}),
        ({"logit_bias": [[5, False], ["a", 1.5]]}, {"logit_bias": [["a", 1.5]], "suppress_ids": [5]}),
        ({"logit_bias": {"a": 1, "7": False}}, {"logit_bias": [["a", 1]], "suppress_ids": [7]}),
        ({"logit_bias": [["a", False], [5, 1], [5, 2]]}, {"logit_bias": [["a", False], [5, 1], [5, 2]]}),
        ({"banned_tokens": ["x"], "allowed_tokens": "5, 6"}, {"ban": ["x"], "allow_ids": [5, 6]}),
        ({"grammar": "", "regex_pattern": "", "json_schema": "", "dry_base": 0, "stopping_strings": ["x"]},
         {"stop": ["x"]}),
        ({"response_format": {"type": "json_schema", "schema": {}}}, {"json_schema": "{}"}),
        ({"custom_token_bans": "5, 6", "banned_strings": ["x"]}, {"suppress_ids": [5, 6], "ban": ["x"]}),
        ({"custom_token_bans": "", "grammar_string": "", "negative_prompt": "", "banned_strings": ""}, {}),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": -1, "dry_sequence_breakers": '"\\n", "x"'},
         {"dry_multiplier": 0.8, "dry_breaker": ["\n", "x"]}),
        ({"encoder_repetition_penalty": 1.25},
         {"stages": {"repetition": {"penalty": 0.8, "scope": "prompt"}}}),
        ({"encoder_no_repeat_ngram_size": 3, "stages": {"lz": 1}, "rep_pen_slope": 0.5},
         {"stages": {"no_repeat_ngram": {"n": 3, "scope": "prompt"}, "lz": 1, "repetition": {"slope": 0.5}}}),
        ({"do_sample": False}, {"sampler": "greedy"}),
        ({"thinking_token_budget": -1}, {}),
        ({"thinking_budget": 5, "reasoning_budget_message": "x"},
         {"reasoning_budget": 5, "reasoning_message": "x"}),
        ({"do_sample": True, "repeat_last_n": -1, "rep_pen_range": 0, "top_nsigma_p": 1, "rid": "x"}, {}),
        ({"mirostat_mode": 2, "mirostat_tau": 4, "smoothing_factor": 0.1, "temp_exponent": 2},
         {"mirostat": 2, "mirostat_tau": 4, "smoothing": 0.1, "dynatemp_exponent": 2}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"json": True}),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
         {"json_schema": "{}"}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"t_max_predict_ms": 1500}, {"max_time": 1.5}),
        ({"typical_p": 0.9, "dynatemp_low": 1, "skip_special_tokens": True}, {"typical": 0.9}),
        ({"best_of": 2, "n": 2}, {"n": 2}),
        ({"best_of": 3, "n": 2}, {"n": 2, "best_of": 3}),
        ({"use_beam_search": True, "n": 2, "best_of": 4}, {"n": 2, "beams": 4}),
        ({"use_beam_search": True, "n": 2, "temperature": 0}, {"n": 2, "beams": 2}),
        ({"use_beam_search": False, "length_penalty": 1.0, "early_stopping": False}, {}),
        ({"stages": {"min_p": 0.1}, "chain": "temperature=0.5 | min_p=0.1"},
         {"stages": {"min_p": 0.1}, "chain": "temperature=0.5 | min_p=0.1"}),
        ({"guidance_scale": 2, "negative_prompt": "x"}, {"guidance": 2, "negative": "x"}),
    ]  # fmt: skip
    for body, expected in cases:
        assert options(**body) == expected, body


def test_a_field_that_cannot_be_followed_is_named(fake):
    cases = [
        ({"top_kk": 5}, "top_kk", "unknown_field", "There is no field 'top_kk'. Did you mean 'top_k'?"),
        ({"min_keep": 2}, "min_keep", "unsupported_value", "min_keep is 2, which this server cannot do."),
        ({"max_temp": 2}, "max_temp", "unsupported_value", "The nearest field is dynatemp_max."),
        ({"frequency": 1}, "frequency", "unknown_field", "It is a stage: write it under stages"),
        ({"dtype": "float16"}, "dtype", "unknown_field", "There is no field 'dtype'."),
        ({"chat_template": "x"}, "chat_template", "unknown_field", "There is no field 'chat_template'."),
        ({"grammar": "etc/passwd"}, "grammar", "invalid_value", "grammar names a file"),
        ({"tools": "tools.json"}, "tools", "invalid_value", "tools names a file"),
        ({"json_schema": "a.json"}, "json_schema", "invalid_value", "json_schema names a file"),
        ({"json_schema": "/dev/zero"}, "json_schema", "invalid_value", "json_schema names a file"),
        ({"guided_json": "some/where"}, "guided_json", "invalid_value", "guided_json names a file"),
        ({"structural_tag": "/dev/zero"}, "structural_tag", "invalid_value", "structural_tag names a file"),
        ({"lark": "some/where"}, "lark", "invalid_value", "lark names a file"),
        ({"draft_tree": "/dev/zero"}, "draft_tree", "invalid_value", "draft_tree names a file"),
        ({"preset": "../x"}, "preset", "invalid_value", "a request can name no file"),
        ({"dry_sequence_breakers": '"'}, "dry_sequence_breakers", "invalid_value", "to be a list of texts"),
        ({"encoder_rep_pen": -1}, "encoder_rep_pen", "invalid_value", "has to be a number above 0"),
        ({"encoder_rep_pen": 2, "rep_pen_slope": 2}, "rep_pen_slope", "invalid_value", "set the same option"),
        ({"dry_multiplier": 1, "dry_penalty_last_n": 0}, "dry_penalty_last_n", "invalid_value", "different"),
        ({"max_tokens": 3, "max_new_tokens": 4}, "max_new_tokens", "invalid_value", "set the same option"),
        ({"stream": 1}, "stream", "invalid_value", "stream has to be true or false."),
        ({"stream_options": {}}, "stream_options", "invalid_value", "stream_options needs stream = true."),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value", "tool_choice needs tools."),
        ({"logit_bias": {"a": "x"}}, "logit_bias", "invalid_value", "has to be an object of token ids"),
        ({"n_probs": 2}, "n_probs", "unsupported_value", "Leave it out. The nearest field is logprobs."),
        ({"truncation_length": 1, "prompt": "ab"}, "truncation_length", "unsupported_value", "2 tokens"),
        ({"reasoning_format": "none", "constrain_after": "</t>", "choice": ["a"]}, "reasoning_format",
         "unsupported_value", "constrain_after separates it"),
        ({"functions": [{}]}, "functions", "unknown_field", "The nearest field is tools."),
        ({"return_token_id": True}, "return_token_id", "unknown_field", "Did you mean 'return_token_ids'?"),
        ({"response_format": {"type": "xml"}}, "response_format", "invalid_value", "has to be text, json"),
        ({"prompt": []}, "prompt", "invalid_value", "prompt has to be a text"),
        ({"prompt": [1, "a"]}, "prompt", "invalid_value", "prompt has to be a text"),
        ({"prompt": None}, "prompt", "missing_field", "The body needs prompt."),
        ({"logprobs": -1}, "logprobs", "invalid_value", "logprobs has to be a whole number from 0."),
        ({"messages": MESSAGES}, "messages", "unknown_field", "There is no field 'messages'."),
    ]  # fmt: skip
    for body, param, code, message in cases:
        error = refusal(fake, "completions", **{"prompt": "a", **body})
        assert (error["param"], error["code"]) == (param, code), body
        assert message in error["message"], body


def test_what_a_route_cannot_do_is_refused_by_name(fake):
    cases = [
        ("completions", {"suffix": "x"}, "suffix"),
        ("completions", {"cache_salt": ""}, "cache_salt"),
        ("completions", {"cache_salt": "a/b"}, "cache_salt"),
        ("completions", {"cache_salt": "a" * 129}, "cache_salt"),
        ("completions", {"priority": "high"}, "priority"),
        ("completions", {"priority": 2**31}, "priority"),
        ("completions", {"logprobs": 1, "logprobs_mode": "raw_logits"}, "logprobs_mode"),
        ("completions", {"logprobs_mode": "processed_logprobs"}, "logprobs_mode"),
        ("completions", {"return_banned_by": True}, "return_banned_by"),
        ("completions", {"prompt_logprobs": -1}, "prompt_logprobs"),
        ("completions", {"prompt_logprobs": 21}, "prompt_logprobs"),
        ("completions", {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ("completions", {"prompt_logprobs": 1, "logprobs": 2, "echo": True}, "prompt_logprobs"),
        ("completions", {"continue_final_message": True}, "continue_final_message"),
        ("chat/completions", {"add_special_tokens": True}, "add_special_tokens"),
        ("chat/completions", {"continue_final_message": True}, "continue_final_message"),
        ("chat/completions", {"documents": [{"text": "x"}]}, "documents"),
        ("chat/completions", {"documents": "x"}, "documents"),
        ("chat/completions", {"thinking": "maybe"}, "thinking"),
        ("chat/completions", {"thinking": {"type": "enabled", "tokens": 5}}, "thinking"),
        ("chat/completions", {"chat_template_kwargs": {"x": "a" * (1 << 20)}}, "chat_template_kwargs"),
        ("chat/completions", {"response_prefix": "x"}, "response_prefix"),
        ("chat/completions", {"chat_template": "x"}, "chat_template"),
        ("responses", {"n_cmpl": 2}, "n_cmpl"),
        ("responses", {"return_token_ids": True}, "return_token_ids"),
        ("responses", {"prompt_logprobs": 1}, "prompt_logprobs"),
    ]
    for path, body, param in cases:
        sent = {"completions": {"prompt": "a"}, "responses": {"input": "a"}}.get(path, {"messages": MESSAGES})
        error = refusal(fake, path, **{**sent, **body})
        assert error["param"] == param, (path, body, param)
        assert param in error["message"], (path, body, param)


def test_no_template_is_a_variable(fake):
    body = {"messages": MESSAGES, "chat_template_kwargs": {"chat_template": "x"}}
    assert "chat_template" in refusal(fake, "chat/completions", **body)["message"]


def test_lenient_drops_unknown_fields_and_says_which():
    call = read_call({"prompt": "a", "top_kk": 5, "top_k": 3}, "completions", is_lenient=True)
    assert (call.options.values, call.options.dropped) == ({"top_k": 3}, ("top_kk",))
    with serve(Conditions(is_lenient=True)) as client:
        assert post(client, "completions", prompt="a", top_kk=5)["dropped_fields"] == ["top_kk"]
    body = {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "extra": 1}]}
    call = read_call(body, "chat", is_lenient=True)
    assert call.options.dropped == ("messages[1].extra",)
    assert [message["content"] for message in call.messages] == ["a", "b"]
    with pytest.raises(ApiError, match="messages\\[1\\] has no field 'extra'"):
        read_call(body, "chat")


def test_prompts_are_texts_or_ids():
    cases = [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ((1, 2),)), ([[1], [2, 3]], ((1,), (2, 3)))]
    for prompt, prompts in cases:
        assert completion(prompt=prompt).prompts == prompts, prompt


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


def test_messages_may_have_what_an_answer_had():
    answer = {
        "role": "assistant",
        "content": "a",
        "parsed": {"a": 1},
        "reasoning_details": [],
        "prefix": None,
    }
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "cache_control": {}}
    made = chat(messages=[*MESSAGES, answer, refusal]).messages
    assert [message["content"] for message in made] == ["hi", "a", "no"]


def test_a_wrong_message_is_named(fake):
    cases = [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user", "content": [{"type": "image_url"}]}], "messages[1].content"),
        ([{"role": "user", "content": "x", "contnet": 1}], "messages[0].contnet"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0]"),
    ]
    for messages, param in cases:
        assert refusal(fake, "chat/completions", messages=messages)["param"] == param, messages


def test_variables_of_the_template():
    cases = [
        ({"chat_template_kwargs": {"a": 1}, "reasoning_effort": "low"}, {"a": 1, "reasoning_effort": "low"}),
        ({"template_vars": {"a": 1}, "enable_thinking": False}, {"a": 1, "enable_thinking": False}),
        ({"thinking": {"type": "disabled"}}, {"thinking": False, "enable_thinking": False}),
        ({"documents": [{"text": "x"}]}, {"documents": [{"text": "x"}]}),
        ({"verbosity": "low"}, {"verbosity": "low"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"enabled": False}}, {"thinking": False, "enable_thinking": False}),
        ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
    ]
    for body, variables in cases:
        assert chat(**body).variables == variables, body


def test_tools_are_text_and_their_choice_a_name():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    named = chat(tools=tools, tool_choice={"type": "function", "function": {"name": "f"}}).options.values
    assert (json.loads(named["tools"]), named["tool_choice"]) == (tools, "f")
    assert chat(tools=tools, tool_choice="none").options.values == {}
    function = {**tools[0]["function"], "description": None, "strict": None}
    sent = [{"type": "function", "function": function, "cache_control": {}, "defer_loading": False}]
    assert json.loads(chat(tools=sent).options.values["tools"]) == tools


def test_what_a_client_sizes_is_limited(fake):
    cases = [
        ({"n": 1000}, "n"),
        ({"prompt": ["a"] * 300}, "prompt"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": "x" * 1001}, "stop"),
        ({"logit_bias": {str(number): 1 for number in range(5000)}}, "logit_bias"),
        ({"guided_regex": "a" * (1 << 19)}, "guided_regex"),
        ({"logit_bias": {"a" * (1 << 17): 1}}, "logit_bias"),
        ({"grammar_timeout": 1e6}, "grammar_timeout"),
        ({"retries": 100}, "retries"),
    ]
    for body, param in cases:
        error = refusal(fake, "completions", **{"prompt": "a", **body})
        assert (error["param"], error["code"]) == (param, "too_large"), body


def test_what_cannot_fit_is_refused_before_it_is_tokenized():
    with pytest.raises(ApiError, match="has 25600 texts"):
        check_call(completion(prompt=["a"] * 200, n=128), CallLimits())
    for body in [{"prompt": "a" * 70_000}, {"prompt": [1] * 70_000}]:
        with pytest.raises(ApiError) as caught:
            check_call(completion(**body), CallLimits(), context=1024)
        assert caught.value.code == "context_length_exceeded", body
    with pytest.raises(ApiError) as caught:
        completion(**{"x" * 100_000: 1})
    assert len(json.dumps(caught.value.body)) < 3000  # an error does not grow with what it quotes


def test_whether_a_file_exists_cannot_be_asked(tmp_path, monkeypatch):
    """The same answer for a name of a file that there is and one that there is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("{}")
    said = [options(json_schema=name)["json_schema"] for name in ("there", "gone")]
    assert said[0].replace("there", "gone") == said[1]
    for name in (str(tmp_path / "there"), str(tmp_path / "gone"), "gone.json"):
        with pytest.raises(ApiError, match="names a file"):
            options(json_schema=name)


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "server.md"
ROUTES = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}),
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 3}),
    "responses": ("/v1/responses", {"input": "a", "max_output_tokens": 3}),
    "tokenize": ("/tokenize", {}),
}
LIMITS = {
    "max_tokens",
    "n_predict",
    "max_completion_tokens",
    "max_new_tokens",
    "max_length",
    "max_output_tokens",
}
LONG = {"prompt": "a" * 1000, "input": "a" * 1000, "messages": [{"role": "user", "content": "a" * 990}]}


def table_rows():
    """Each value of the table: the fields, the routes, and what happens."""
    text = PAGE.read_text().partition("\n## Fields of other servers\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        if line.startswith('| `"'):
            sent, _, routes, outcome = (cell.strip() for cell in line.strip("|").split(" | "))
            for span in re.findall(r'`(".*?)`(?:, |$)', sent):
                yield json.loads(f"{{{span}}}"), routes.split(", "), outcome


@cache
def plain_text(client, route):
    path, body = ROUTES[route]
    return _text(client.post(path, json={**body, "seed": 1}).json())


def _text(reply):
    if "output" in reply:
        return reply["output"][0]["content"][0]["text"]
    choice = reply["choices"][0]
    return choice.get("text") or choice["message"]["content"]


def ask(client, route, fields):
    path, body = ROUTES[route]
    if LIMITS & fields.keys():  # the context ends soon, as the text has no limit of its own
        body = {key: LONG[key] for key in body.keys() & LONG.keys()}
    return client.post(path, json={**body, **({} if route == "tokenize" else {"seed": 1}), **fields})


def check_rows(client, kind, status):
    """Send the table_rows of a kind: a hint, and a value without effect, leave the text as it is."""
    found = [(fields, route, outcome) for fields, routes, outcome in table_rows() for route in routes]
    chosen = [row for row in found if row[2].startswith(kind)]
    assert len(chosen) > 10, kind
    for fields, route, _ in chosen:
        reply = ask(client, route, fields)
        assert reply.status_code == status, (fields, route, reply.text)
        if status == 400:
            message = reply.json()["error"]["message"]
            assert any(name in message for name in fields), (fields, route, message)
        elif kind != "effect":
            assert _text(reply.json()) == plain_text(client, route), (fields, route)


def test_fields_of_other_servers_do_what_the_table_says(fake):
    assert all(outcome.startswith(("refused", "effect", "hint", "no effect")) for *_, outcome in table_rows())
    for kind, status in (("refused", 400), ("hint", 200), ("no effect", 200)):
        check_rows(fake, kind, status)
