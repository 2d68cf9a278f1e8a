"""OpenAI's batch files: request lines in, response lines out."""

import json

from gencli.batch.batch_rows import response_line
from processors.params import MOST
from tests.batch.test_rows import reason, row

MESSAGES = [{"role": "user", "content": "hi"}]


def line(url="/v1/chat/completions", method="POST", **body):
    content = {} if "prompt" in body or "messages" in body else {"messages": MESSAGES}
    return {"custom_id": "r1", "method": method, "url": url, "body": {"model": "gpt", **content, **body}}


def test_a_request_line_is_a_row():
    made = row(
        line(max_completion_tokens=9, temperature=0.5, top_p=0.9, n=2, seed=4, stop=["x"], user="u",
             frequency_penalty=0.1, presence_penalty=0.2, logit_bias={"42": -100}, stream=False,
             response_format={"type": "text"}, top_k=5, stop_token_ids=[7], logprobs=None)
    )  # fmt: skip
    assert made.failure is None
    assert (made.id, made.messages) == ("r1", tuple(MESSAGES))
    assert made.options == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 4, "stop": ["x"],
        "frequency_penalty": 0.1, "presence_penalty": 0.2, "logit_bias": [[42, -100]], "top_k": 5,
        "stop_id": [7],
    }  # fmt: skip


def test_what_asks_for_nothing_is_left_out_as_by_the_server():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for fields in (
        {"tools": tools, "tool_choice": "none"},
        {"tools": [], "tool_choice": "auto"},
        {"verbosity": "medium", "reasoning_budget": -1},
    ):
        made = row(line(**fields))
        assert (made.failure, made.options) == (None, {}), fields
    assert row(line(tools=tools, tool_choice="auto")).options.keys() == {"tools", "tool_choice"}
    assert row(line(max_tokens=-1)).options == row(line(n_predict=-1)).options == {"max_tokens": MOST}
    assert "tool_choice needs tools" in reason(line(tool_choice="required"))


def test_a_completion_is_a_raw_prompt():
    made = row(line("/v1/completions", prompt="a"))
    assert (made.prompt, made.messages, made.failure) == ("a", (), None)


def test_a_field_that_does_not_work_is_named():
    cases = [
        (line(suffix="x"), "The field suffix of the body is not supported."),
        (line(stream=True), "stream is True, which a batch does not support."),
        (line(max_tokens=3, max_completion_tokens=4), "max_completion_tokens says 4, another field says 3"),
        (line(logit_bias=[1]), "logit_bias has to be an object of token ids, or of texts, and numbers."),
        (
            line(response_format={"type": "xml"}),
            "response_format has to be text, json_object, or json_schema",
        ),
        (line(temperature=-1), "temperature is -1"),
        (line(dtype="float16"), "The field dtype of the body is not supported."),
        (line("/v1/embeddings"), "The request is POST /v1/embeddings, but has to be POST"),
        (line(method="GET"), "The request is GET"),
        (line("/v1/completions"), "has to have prompt, and no other prompt."),
        (line(prompt="a"), "has to have messages, and no other prompt."),
        (line(messages="hi"), "This is not JSON"),
        ({**line(), "extra": 1}, "A request line has no field 'extra'"),
        ({"custom_id": "a", "url": "/v1/chat/completions"}, "The request's body has to be an object."),
        ({**line(), "custom_id": ""}, "The id (column custom_id) is missing."),
    ]
    for columns, message in cases:
        assert message in reason(columns), columns


def result(**changes):
    one = {
        "id": "r1", "prompt": "p", "text": "t", "finish_reason": "eos", "matched": None, "offset": None,
        "completion_tokens": 3, "error": None, "prompt_tokens": 2, "seed": 1, "model": "tiny",
    }  # fmt: skip
    return {**one, **changes}


def several():
    error = {"type": "EmptySupport", "message": "no token"}
    made = result(texts=["a", "b"], finish_reason=["length", "error"], matched=[None] * 2,
                  offset=[None] * 2, completion_tokens=[3, None], error=[None, error])  # fmt: skip
    del made["text"]
    return made


def test_a_result_is_a_response_with_choices_and_usage():
    made = response_line("r1", result())
    assert made["custom_id"] == "r1"
    assert made["error"] is None
    assert made["response"]["status_code"] == 200
    body = made["response"]["body"]
    assert body["choices"] == [{
        "index": 0, "message": {"role": "assistant", "content": "t", "refusal": None}, "logprobs": None,
        "finish_reason": "stop",
    }]  # fmt: skip
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    json.dumps(made)


def test_samples_are_choices_and_one_that_failed_says_so():
    choices = response_line("r1", several())["response"]["body"]["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "error"]


def test_a_row_without_any_text_is_an_error():
    error = {"type": "UsageError", "message": "too long"}
    made = response_line("r1", {"error": error})
    assert made["response"] is None
    assert made["error"] == {"code": "UsageError", "message": "too long"}
