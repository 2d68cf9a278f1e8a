"""The explanations of tokens through HTTP: those of `gencli run` in any company, bounded, refused by name."""

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from gencli.server.access import CallLimits, Conditions, check_traced
from gencli.server.served_models import make_plan
from gencli.server.wire_fields import ApiError
from tests.engine.harness import request
from tests.server.conftest import events, serve

BODY = {"prompt": "Once upon a time", "seed": 7, "max_tokens": 9, "temperature": 1.5, "top_k": 12, "trace": 3}
CHAT = {**BODY, "messages": [{"role": "user", "content": "Hi"}]}
del CHAT["prompt"]


def facts(records):
    """Records without the names of their text, and without fractions: their last digits depend on company."""
    bare = json.loads(json.dumps(list(records)), parse_float=lambda number: None)
    return [{k: v for k, v in one.items() if k not in ("run", "sample", "v", "kind")} for one in bare]


def streamed(client, path="completions", **body):
    """The records and the ids of each choice of a stream; those of a chunk belong together."""
    traces, ids = {}, {}
    asked = {**body, "stream": True, "return_token_ids": True}
    for chunk in events(client.post(f"/v1/{path}", json=asked)):
        for choice in chunk["choices"]:
            own = choice.get("trace", [])
            assert [record["id"] for record in own] == choice.get("token_ids", [])
            traces.setdefault(choice["index"], []).extend(own)
            ids.setdefault(choice["index"], []).extend(choice.get("token_ids", []))
    return traces, ids


def test_thinking_and_calls_leave_no_token_out(fake):
    body = {"messages": [{"role": "user", "content": "a"}], "constrain_after": "b", "regex": "[ab]{3}",
            "allow_ids": [97, 98, 257], "trace": 1, "max_tokens": 30, "seed": 1, "temperature": 2,
            "return_token_ids": True}  # fmt: skip
    traces, ids = streamed(fake, "chat/completions", **body)
    assert ids[0]
    assert [one["id"] for one in traces[0]] == ids[0]


HOSTILE = [0, -1, -(10**90), 21, 10**90, True, False, "5", "x" * 5000, 2.5, [3], {"a": 1}, [[]]]


def test_a_hostile_value_is_refused_by_name(fake):
    for value, path in product(HOSTILE, ["completions", "chat/completions", "responses"]):
        body = {"completions": BODY, "chat/completions": CHAT, "responses": {"input": "a"}}[path]
        if path == "responses" and value is False:
            continue  # nothing is asked for
        error = fake.post(f"/v1/{path}", json={**body, "trace": value})
        assert (error.status_code, error.json()["error"]["param"]) == (400, "trace"), (path, value)
    for value in ["NaN", "Infinity", "1e999", "9" * 5000]:
        body = json.dumps(BODY).replace('"trace": 3', f'"trace": {value}')
        reply = fake.post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 400, value


def test_what_has_no_trace_is_refused(fake):
    cases = [
        ({"beams": 2, "temperature": None, "top_k": None}, "a search draws no token"),
        ({"finish_open": True, "json": True}, "finish_open"),
        ({"max_tokens": 0, "echo": True}, "none is generated"),
        ({"n": 128, "max_tokens": 1000, "trace": 20}, "lower trace, max_tokens or n"),
    ]
    for more, said in cases:
        error = fake.post("/v1/completions", json={**BODY, **more}).json()["error"]
        assert error["param"] == "trace", more
        assert said in error["message"], more


def orders(chain="temperature=0.7 | top_k=5", retries=0, **options):
    own = {"trace": 5, **options}
    one = replace(request("abc", chain=chain, max_tokens=own.pop("max_tokens", 10)), **own)
    return [SimpleNamespace(request=one, structure=SimpleNamespace(retries=retries))]


def test_the_size_of_a_trace_is_counted():
    limits = CallLimits(traced_ids=5 * (2 + 2) * 10)
    check_traced(orders(), limits, 1000)
    check_traced(orders(trace=None, n=100), limits, 1000)
    check_traced(orders(max_tokens=10_000), limits, 13)  # the prompt has three tokens
    for more in ({"n": 2}, {"best_of": 2}, {"trace": 6}, {"max_tokens": 11}, {"retries": 1}):
        with pytest.raises(ApiError, match="lower trace"):
            check_traced(orders(**more), limits, 1000)
    with pytest.raises(ApiError, match="lower trace"):
        check_traced(orders() * 2, limits, 1000)
    with pytest.raises(ApiError, match="at most 1 stages, but the chain has 2"):
        check_traced(orders(), CallLimits(traced_stages=1), 1000)


def test_a_server_may_give_no_traces():
    with serve(Conditions(limits=CallLimits(trace=0))) as client:
        error = client.post("/v1/completions", json=BODY).json()["error"]
        assert (error["param"], error["code"]) == ("trace", "unsupported_value")
        assert client.post("/v1/completions", json={**BODY, "trace": None}).status_code == 200


def test_beside_a_watermark_what_shows_it_has_to_be_allowed():
    mark = {"watermark": "kgw", "watermark_key": "key.yaml"}
    for given, most, is_told in (
        ({}, 20, True), ({"max_trace": 0}, 0, True), (mark, 0, False), ({**mark, "max_trace": 4}, 4, True),
    ):  # fmt: skip
        limits = make_plan(given, {}).conditions.limits
        assert (limits.trace, limits.processed) == (most, is_told)
    plan = make_plan({}, {"GENCLI_TRACE": "t.jsonl", "GENCLI_TRACE_TOP": "3", "GENCLI_TOP_K": "4"})
    assert (plan.settings["trace"], plan.settings["top_k"]) == (None, 4)  # a variable turns no trace on
    with serve(Conditions(limits=CallLimits(processed=False))) as client:
        asked = {**BODY, "logprobs": 1, "logprobs_mode": "processed_logprobs"}
        error = client.post("/v1/completions", json=asked).json()["error"]
        assert (error["param"], error["code"]) == ("logprobs_mode", "unsupported_value")
