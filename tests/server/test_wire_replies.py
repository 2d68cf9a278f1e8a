"""The bytes of replies and streams, against the documents of OpenAI's API."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from gencli.core.events import (
    Alternative,
    Error,
    Finish,
    PromptScores,
    Timings,
    Token,
    TokenLogprobs,
    ValidationResult,
)
from gencli.server.wire_answers import Answers, Shape, TokenStyle
from gencli.server.wire_calls import read_call
from gencli.server.wire_fields import ApiError
from gencli.server.wire_replies import ReplyFields, ResponseStream, StreamReply, WholeReply, sse
from gencli.structured.tool_calls import detect_format
from gencli.text.tokenizer import ByteTokenizer

LOW, HIGH = ord("i"), ord("H")


def finish(text="Hi", reason="eos", tokens=2, **more):
    times = Timings(0.1, 0.1, 0.1)
    given = {"matched": None, "offset": None, "prompt_tokens": 9, "completion_tokens": tokens, **more}
    return Finish(request="r-0", sample=0, text=text, reason=reason, timings=times, **given)


def call(route="chat", logprobs=None, **body):
    content = {
        "chat": {"messages": [{"role": "user", "content": "x"}]},
        "completions": {"prompt": "ab"},
        "responses": {"input": "x"},
    }[route]
    return replace(read_call({**content, **body}, route), logprobs=logprobs)


def reply(call, echoes=()):
    style = TokenStyle(ByteTokenizer(), is_processed=call.is_processed, has_bans=call.has_bans)
    return ReplyFields(call, "1", 1795000000, "tiny", "gencli-0-0", style, echoes)


def whole(call, events, shape=None, echoes=()):
    made = WholeReply(reply(call, echoes), Answers({"r-0": shape or Shape()}, 1))
    for event in events:
        made.add(event)
    return made.body()


def stream(call, events, shape=None, echoes=()):
    made = StreamReply(reply(call, echoes), Answers({"r-0": shape or Shape()}, 1))
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


def test_a_completion_stream_is_the_document_byte_by_byte():
    chunks = stream(call("completions", stream=True), HI[:1] + HI[2:])
    head = (
        'data: {"id":"cmpl-1","object":"text_completion","created":1795000000,"model":"tiny",'
        '"system_fingerprint":"gencli-0-0","choices":[{"index":0,"text":'
    )
    assert [sse(chunk).decode() for chunk in chunks] == [
        head + '"H","logprobs":null,"finish_reason":null}]}\n\n',
        head + '"","logprobs":null,"finish_reason":"stop"}]}\n\n',
    ]


def test_a_stream_of_tool_calls_is_the_document_byte_by_byte():
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    cuts = [0, 30, 43, len(text)]
    pieces = [Token("r-0", 0, text[a:b], (1,)) for a, b in pairwise(cuts)]
    last = finish(text, "grammar", verdict=ValidationResult((), None, text))
    chunks = stream(call(stream=True), [*pieces, last], HERMES)[1:]
    head = (
        'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795000000,"model":"tiny",'
        '"system_fingerprint":"gencli-0-0","choices":[{"index":0,"delta":'
    )
    end = ',"logprobs":null,"finish_reason":'
    parts = [
        '{"tool_calls":[{"index":0,"id":"call_1_0_0","type":"function",'
        '"function":{"name":"f","arguments":""}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\""}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":": 1}"}}]}',
    ]
    assert [sse(chunk).decode() for chunk in chunks] == [
        *(f"{head}{part}{end}null}}]}}\n\n" for part in parts),
        head + "{}" + end + '"tool_calls"}]}\n\n',
    ]


def test_a_stream_of_a_response_is_the_document_byte_by_byte():
    made = ResponseStream(reply(call("responses")), Answers({"r-0": Shape()}, 1))
    found = [*made.begin(), *(one for event in HI[:1] + HI[2:] for one in made.add(event))]
    place = '"item_id":"msg_1","output_index":0,"content_index":0'
    part = '{{"type":"output_text","text":"{}","annotations":[],"logprobs":[]}}'
    item = '{{"type":"message","id":"msg_1","role":"assistant","status":"{}","content":[{}]}}'
    expected = [
        ("output_item.added", f'"output_index":0,"item":{item.format("in_progress", "")}'),
        ("content_part.added", f'{place},"part":{part.format("")}'),
        ("output_text.delta", f'{place},"delta":"H","logprobs":[]'),
        ("output_text.done", f'{place},"text":"H","logprobs":[]'),
        ("content_part.done", f'{place},"part":{part.format("H")}'),
        ("output_item.done", f'"output_index":0,"item":{item.format("completed", part.format("H"))}'),
    ]
    assert [made.frame(event).decode() for event in found[2:]] == [
        f'event: response.{kind}\ndata: {{"type":"response.{kind}","sequence_number":{number},{fields}}}\n\n'
        for number, (kind, fields) in enumerate(expected, start=2)
    ]


def test_an_error_after_the_first_byte_is_an_event():
    error = ApiError(503, "The server is shutting down.", code="shutdown")
    chat = StreamReply(reply(call()), Answers({"r-0": Shape()}, 1))
    assert chat.error(error) + chat.done == (
        b'data: {"error":{"message":"The server is shutting down.","type":"unavailable_error","param":null,'
        b'"code":"shutdown"}}\n\ndata: [DONE]\n\n'
    )
    response = ResponseStream(reply(call("responses")), Answers({"r-0": Shape()}, 1))
    assert response.error(error) + response.done == (
        b'event: error\ndata: {"type":"error","sequence_number":0,"code":"shutdown",'
        b'"message":"The server is shutting down.","param":null}\n\n'
    )


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
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks[:2]] == [[0], [0]]
    chat = stream(call(logprobs=0), events)[1:3]
    bytes_ = [chunk["choices"][0]["logprobs"]["content"][0]["bytes"] for chunk in chat]
    assert bytes_ == [[first], [second]]


HERMES = Shape(tools=detect_format("<tool_call>")[0])
CALLS = [
    """<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>""",
    """<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>""",
]
TEXT = "Sure. " + "\n".join(CALLS)


def tool_events(text=TEXT, reason="grammar", faults=(), size=3):
    verdict = ValidationResult(faults, None, text)
    pieces = [Token("r-0", 0, text[at : at + size], (at,)) for at in range(0, len(text), size)]
    return [*pieces, finish(text, reason, verdict=verdict)]


def calls_of(chunks):
    """The tool calls of a stream as clients join them."""
    made = []
    for part in (part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", ())):
        if "id" in part:
            assert (part["index"], part["function"]["arguments"]) == (len(made), "")
            made.append({key: value for key, value in part.items() if key != "index"})
            made[-1]["function"] = dict(part["function"])
        else:
            made[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return made


def test_tool_calls_follow_the_text_before_them_in_pieces():
    for size in [1, 2, 3, 7, 1000]:
        choice = whole(call(), tool_events(size=size), HERMES)["choices"][0]
        message = choice["message"]
        assert (message["content"], choice["finish_reason"]) == ("Sure.", "tool_calls"), size
        assert [(each["id"], each["type"], each["function"]) for each in message["tool_calls"]] == [
            ("call_1_0_0", "function", {"name": "f", "arguments": '{"a": 1}'}),
            ("call_1_0_1", "function", {"name": "g", "arguments": "{}"}),
        ], size
        chunks = stream(call(), tool_events(size=size), HERMES)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert "".join(delta.get("content", "") for delta in deltas) == "Sure.", size
        assert calls_of(chunks) == message["tool_calls"], size
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "tool_calls"], size


def test_tool_calls_of_a_response_are_items_that_end_one_after_the_other():
    made = ResponseStream(reply(call("responses")), Answers({"r-0": HERMES}, 1))
    found = [*made.begin()]
    for event in tool_events(size=30):
        found += made.add(event)
    found += made.end()
    kinds = [event["type"].removeprefix("response.") for event in found]
    message = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done",
               "content_part.done", "output_item.done"]  # fmt: skip
    arguments = "function_call_arguments."
    ends = [f"{arguments}done", "output_item.done"]
    assert kinds == [
        "created", "in_progress", *message,
        "output_item.added", f"{arguments}delta", *ends,
        "output_item.added", f"{arguments}delta", *ends, "completed",
    ]  # fmt: skip
    first, second = found[-1]["response"]["output"][1:]
    assert (first["name"], first["arguments"]) == ("f", '{"a": 1}')
    assert (second["name"], second["arguments"], second["status"]) == ("g", "{}", "completed")
    assert [event["output_index"] for event in found[8:-1]] == [1] * 4 + [2] * 4


def test_a_call_that_was_cut_has_its_arguments_so_far_and_says_why():
    events = tool_events(TEXT[: TEXT.index(": 1")], "length", ("cut",))
    choice = whole(call(), events, HERMES)["choices"][0]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a"'}
    assert (choice["finish_reason"], choice["faults"]) == ("length", ["cut"])
    assert calls_of(stream(call(), events, HERMES)) == choice["message"]["tool_calls"]
    early = whole(call(), tool_events(TEXT[:20], "length", ("cut",)), HERMES)["choices"][0]
    assert (early["message"]["content"], "tool_calls" in early["message"]) == ("Sure.", False)


def test_calls_that_may_be_retried_come_at_the_end():
    events = [Token("r-0", 0, CALLS[1], (1,)), *tool_events()]
    chunks = stream(call(), events, replace(HERMES, is_live=False))
    assert calls_of(chunks) == whole(call(), tool_events(), HERMES)["choices"][0]["message"]["tool_calls"]
    assert len([1 for chunk in chunks if "tool_calls" in chunk["choices"][0]["delta"]]) == 4


def test_text_that_is_checked_first_comes_at_the_end():
    verdict = ValidationResult((), 1, "1", "thinking</t>", attempts=2)
    texts = [("wrong", (1, 3)), ("thinking", (4,)), ("</t>", (5, 6)), ("1", (2,))]
    events = [Token("r-0", 0, *each) for each in texts] + [finish("1", tokens=4, verdict=verdict)]
    shape = Shape(is_live=False, marker="</t>")
    found = whole(call(return_token_ids=True), events, shape)
    assert found["choices"][0]["token_ids"] == [4, 5, 6, 2]  # of the attempt that counts
    assert found["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    chunks = stream(call(), events, shape)
    assert [chunk["choices"][0]["delta"] for chunk in chunks[1:]] == [
        {"reasoning_content": "thinking", "content": "1"},
        {},
    ]


def test_a_sample_without_a_result_is_an_error_in_openais_form():
    cases = [
        (Error("r-0", 0, "EmptySupport", "no token is left", ""), 400, "empty_support"),
        (Error("r-0", 0, "StageFailure", "it broke", ""), 500, "StageFailure"),
        (finish("", "interrupted"), 503, "shutdown"),
        (finish("", "length", 0, matched="max_time"), 504, "timeout"),
    ]
    for event, status, code in cases:
        with pytest.raises(ApiError) as caught:
            whole(call(), [event])
        assert (caught.value.status, caught.value.code) == (status, code), event
    error = ApiError(429, "Full.", param="n", code="queue_full")
    assert json.loads(json.dumps(error.body)) == {
        "error": {"message": "Full.", "type": "rate_limit_error", "param": "n", "code": "queue_full"}
    }
    assert error.headers == {"retry-after": "1"}
    assert ApiError(500, "x").headers == {"x-should-retry": "false"}
