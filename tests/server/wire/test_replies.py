"""The bytes of replies and streams, against the documents of OpenAI's API."""

import json
from dataclasses import replace

import pytest

from gencli.core.events import Alternative, Error, Finish, PromptScores, Timings, Token, TokenLogprobs
from gencli.server.wire.answers import Answers, Shape
from gencli.server.wire.call import read_call
from gencli.server.wire.errors import ApiError
from gencli.server.wire.logprobs import TokenNames
from gencli.server.wire.replies import Reply, StreamReply, WholeReply, sse
from gencli.structured.validate.verdict import ValidationResult
from gencli.text.tokenizer import ByteTokenizer

NAMES = TokenNames(ByteTokenizer())
LOW, HIGH = ord("i"), ord("H")


def finish(text="Hi", reason="eos", tokens=2, **more):
    times = Timings(0.1, 0.1, 0.1)
    given = {"matched": None, "offset": None, "prompt_tokens": 9, "completion_tokens": tokens, **more}
    return Finish(request="r-0", sample=0, text=text, reason=reason, timings=times, **given)


def call(route="chat", logprobs=None, **body):
    content = {"messages": [{"role": "user", "content": "x"}]} if route == "chat" else {"prompt": "ab"}
    return replace(read_call({**content, **body}, route), logprobs=logprobs)


def reply(call, echoes=()):
    return Reply(call, "1", 1795000000, "tiny", "gencli-0-0", NAMES, echoes)


def whole(call, events, shape=None, echoes=()):
    made = WholeReply(reply(call, echoes), Answers(["r-0"], 1, shape or Shape()))
    for event in events:
        made.add(event)
    return made.body()


def stream(call, events, shape=None, echoes=()):
    made = StreamReply(reply(call, echoes), Answers(["r-0"], 1, shape or Shape()))
    chunks = [*made.begin()]
    for event in events:
        chunks += made.add(event)
    return [*chunks, *made.end()]


def entry(token_id, logprob, *others):
    top = tuple(Alternative(other, value, value) for other, value in others)
    return TokenLogprobs(Alternative(token_id, logprob, logprob), 1, 1, top, top)


HI = [Token("r-0", 0, "H", (HIGH,)), Token("r-0", 0, "i", (LOW,)), finish()]


def test_a_chat_reply_is_the_document():
    assert whole(call(), HI) == {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1795000000, "model": "tiny",
        "system_fingerprint": "gencli-0-0",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": None, "finish_reason": "stop",
        }],
        "usage": {
            "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def test_a_chat_stream_is_the_document_byte_by_byte():
    chunks = stream(call(stream=True, stream_options={"include_usage": True}), HI)
    head = (
        'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795000000,"model":"tiny",'
        '"system_fingerprint":"gencli-0-0","choices":['
    )
    choice = '{{"index":0,"delta":{},"logprobs":null,"finish_reason":{}}}],"usage":null}}\n\n'
    expected = [
        choice.format('{"role":"assistant","content":""}', "null"),
        choice.format('{"content":"H"}', "null"),
        choice.format('{"content":"i"}', "null"),
        choice.format("{}", '"stop"'),
        '],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,'
        '"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}\n\n',
    ]
    assert [sse(chunk).decode() for chunk in chunks] == [head + each for each in expected]


def test_log_probabilities_of_a_chat():
    top = entry(HIGH, -0.1, (HIGH, -0.1), (LOW, float("-inf")))
    found = whole(call(logprobs=2), [Token("r-0", 0, "H", (HIGH,), (top,)), finish("H")])
    assert found["choices"][0]["logprobs"] == {
        "content": [{
            "token": "H", "logprob": -0.1, "bytes": [72],
            "top_logprobs": [
                {"token": "H", "logprob": -0.1, "bytes": [72]},
                {"token": "i", "logprob": -9999.0, "bytes": [105]},
            ],
        }],
        "refusal": None,
    }  # fmt: skip
    none = whole(call(logprobs=0), [Token("r-0", 0, "H", (HIGH,), (entry(HIGH, -0.1),)), finish("H")])
    assert none["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_log_probabilities_of_a_completion_with_its_prompt():
    scores = PromptScores("r-0", (None, entry(98, -0.5, (98, -0.5))))
    events = [scores, Token("r-0", 0, "H", (HIGH,), (entry(HIGH, -1.5, (LOW, -1.0)),)), finish("H")]
    asked, echoes = call("completions", logprobs=1, echo=True), (("ab", (97, 98)),)
    expected = {
        "tokens": ["a", "b", "H"], "token_logprobs": [None, -0.5, -1.5],
        "top_logprobs": [None, {"b": -0.5}, {"i": -1.0, "H": -1.5}], "text_offset": [0, 1, 2],
    }  # fmt: skip
    (choice,) = whole(asked, events, echoes=echoes)["choices"]
    assert (choice["text"], choice["logprobs"]) == ("abH", expected)
    (first, last) = stream(asked, events, echoes=echoes)
    assert first["choices"][0]["logprobs"] == expected
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"]) == ("", "stop")


def test_offsets_go_on_from_chunk_to_chunk_and_halves_of_characters_have_their_bytes():
    first, second = "é".encode()
    events = [
        Token("r-0", 0, "", (first,), (entry(first, -1),)),
        Token("r-0", 0, "é", (second,), (entry(second, -1),)),
        finish("é"),
    ]
    chunks = stream(call("completions", logprobs=0), events)
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks[:2]] == [[0], [1]]
    chat = stream(call(logprobs=0), events)[1:3]
    bytes_ = [chunk["choices"][0]["logprobs"]["content"][0]["bytes"] for chunk in chat]
    assert bytes_ == [[first], [second]]


CALLS = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]
TEXT = 'Sure. <tool>{"name": "f"}'
HERMES = Shape(trigger="<tool>")


def tool_events(valid=True):
    verdict = ValidationResult(() if valid else ("cut",), CALLS if valid else None, TEXT)
    pieces = [Token("r-0", 0, TEXT[at : at + 3], (at,)) for at in range(0, len(TEXT), 3)]
    return [*pieces, finish(TEXT, "grammar" if valid else "length", verdict=verdict)]


def test_tool_calls_follow_the_text_before_them():
    message = whole(call(), tool_events(), HERMES)["choices"][0]["message"]
    assert message["content"] == "Sure."
    assert [each["function"] for each in message["tool_calls"]] == [
        {"name": "f", "arguments": '{"a":1}'},
        {"name": "g", "arguments": "{}"},
    ]
    chunks = stream(call(), tool_events(), HERMES)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == "Sure."
    assert [delta["tool_calls"] for delta in deltas if "tool_calls" in delta] == [
        [{"index": 0, "id": "call_100", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"a":1}'}}],
        [{"index": 1, "id": "call_101", "type": "function", "function": {"name": "g", "arguments": ""}}],
        [{"index": 1, "function": {"arguments": "{}"}}],
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_that_were_cut_stay_text_and_say_why():
    choice = whole(call(), tool_events(valid=False), HERMES)["choices"][0]
    assert choice["message"]["content"] == TEXT
    assert "tool_calls" not in choice["message"]
    assert (choice["finish_reason"], choice["faults"]) == ("length", ["cut"])


def test_text_that_is_checked_first_comes_at_the_end():
    verdict = ValidationResult((), 1, "1", "thinking</t>", attempts=2)
    events = [Token("r-0", 0, "wrong", (1,)), Token("r-0", 0, "1", (2,)), finish("1", verdict=verdict)]
    shape = Shape(is_live=False, marker="</t>")
    chunks = stream(call(), events, shape)
    assert [chunk["choices"][0]["delta"] for chunk in chunks[1:]] == [
        {"reasoning_content": "thinking", "content": "1"},
        {},
    ]


@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        (Error("r-0", 0, "EmptySupport", "no token is left", ""), 400, "empty_support"),
        (Error("r-0", 0, "StageFailure", "it broke", ""), 500, "StageFailure"),
        (finish("", "interrupted"), 503, "shutdown"),
        (finish("", "length", 0, matched="max_time"), 504, "timeout"),
    ],
)
def test_a_sample_without_a_result_is_an_error(event, status, code):
    with pytest.raises(ApiError) as caught:
        whole(call(), [event])
    assert (caught.value.status, caught.value.code) == (status, code)


def test_an_error_has_openais_form():
    error = ApiError(429, "Full.", param="n", code="queue_full")
    assert json.loads(json.dumps(error.body)) == {
        "error": {"message": "Full.", "type": "rate_limit_error", "param": "n", "code": "queue_full"}
    }
    assert error.headers == {"retry-after": "1"}
    assert ApiError(500, "x").headers == {"x-should-retry": "false"}
