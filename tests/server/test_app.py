"""The routes around the texts, and who may use them."""

from gencli.server.access import AccessRules
from gencli.server.serving import Conditions
from tests.server.conftest import serve

HOSTILE = [
    b"", b"null", b"[]", b"1", b'"a"', b"{", b'{"prompt":"a"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 300,
    b'{"prompt":"a","prompt":"b"}', b'{"prompt":"\\ud800"}', b'{"prompt":NaN}',
    b'{"seed":1e999,"prompt":"a"}', b'{"prompt":"a","seed":' + b"9" * 5000 + b"}",
]  # fmt: skip


def test_what_is_no_json_object_is_a_400(fake):
    for body in HOSTILE:
        reply = fake.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400, body
        assert reply.json()["error"]["message"], body


def test_a_wrong_value_names_its_field(fake):
    for body, param in (({"top_p": 7}, "top_p"), ({"repeat_penalty": -1}, "repeat_penalty"),
                        ({"max_new_tokens": -5}, "max_new_tokens"), ({"stop_regex": "("}, "stop_regex"),
                        ({"logit_bias": {"9999": 1}}, "logit_bias"), ({"regex": "("}, "regex"),
                        ({"stages": {"nope": 1}}, "stages"), ({"draft": "x"}, "draft")):  # fmt: skip
        error = fake.post("/v1/completions", json={"prompt": "a", **body}).json()["error"]
        assert error["param"] == param


def test_a_prompt_that_is_too_long_is_refused_before_a_stream(fake):
    for length in (2000, 1_000_000):  # of too many tokens; of too many characters to count them
        reply = fake.post("/v1/completions", json={"prompt": "a" * length, "stream": True})
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "prompt is too long" in error["message"]  # by which litellm and langchain-openai know it


def test_other_routes_have_errors_of_the_same_form(fake):
    cases = [
        ("GET", "/nothing", 404, "not_found_error"),
        ("GET", "/v1/completions", 405, "not_found_error"),
        ("POST", "/health", 405, "not_found_error"),
        ("GET", "/v1/models/other", 404, "not_found_error"),
        ("OPTIONS", "/v1/completions", 405, "not_found_error"),
    ]
    for method, path, status, kind in cases:
        reply = fake.request(method, path)
        assert reply.status_code == status, (method, path, status, kind)
        assert reply.json()["error"]["type"] == kind, (method, path, status, kind)


def test_only_json_is_read(fake):
    reply = fake.post("/v1/completions", content=b'{"prompt":"a"}', headers={"content-type": "text/plain"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_models_version_props_and_health(fake):
    (model,) = fake.get("/v1/models").json()["data"]
    assert model == {
        "id": "fake", "object": "model", "created": model["created"], "owned_by": "gencli",
        "root": "fake", "parent": None, "max_model_len": 1024,
    }  # fmt: skip
    assert fake.get("/v1/models/fake").json() == model
    assert fake.get("/health").json() == {"status": "ok"}
    assert fake.get("/version").json()["version"]
    assert fake.get("/props").json()["default_generation_settings"] == {"n_ctx": 1024}


def test_tokens_go_both_ways(tiny):
    ids = tiny.post("/tokenize", json={"prompt": "Once upon a time"}).json()
    assert ids["count"] == len(ids["tokens"])
    text = tiny.post("/detokenize", json={"tokens": ids["tokens"]}).json()["prompt"]
    assert text.endswith("Once upon a time")
    theirs = tiny.post("/tokenize", json={"content": "Once", "with_pieces": True}).json()["tokens"]
    assert "".join(each["piece"] for each in theirs) == "Once"
    chat = {"messages": [{"role": "user", "content": "hi"}], "return_token_strs": True}
    assert "hi" in "".join(tiny.post("/tokenize", json=chat).json()["token_strs"])
    info = tiny.get("/tokenizer_info").json()
    assert info["chat_template"]
    assert info["eos_token"]


def test_wrong_questions_are_a_400(fake):
    cases = [
        ("/tokenize", {}), ("/tokenize", {"prompt": 5}), ("/tokenize", {"prompt": "a", "content": "b"}),
        ("/tokenize", {"prompt": "a", "contnet": "b"}), ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": "a"}), ("/detokenize", {"tokens": [True]}), ("/v1/chain", {"top_kk": 5}),
        ("/v1/chain", []),
    ]  # fmt: skip
    for path, body in cases:
        reply = fake.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), body


def test_the_chain_is_shown_with_origins():
    with serve(top_p=0.9) as client:
        found = client.post("/v1/chain", json={"temperature": 0.5, "seed": 3}).json()
    by_name = {stage["name"]: stage for stage in found["stages"]}
    assert [*by_name] == ["temperature", "top_p"]
    assert by_name["top_p"]["origins"] == {"p": "flag `top_p`"}
    assert by_name["temperature"]["values"] == {"temperature": 0.5}
    assert (found["seed"], found["max_tokens"], found["sampler"]) == (3, 16, "gumbel")


def test_metrics_count_tokens_and_replies(fake):
    fake.post("/v1/completions", json={"prompt": "abc", "max_tokens": 4, "ignore_eos": True})
    lines = dict(line.rsplit(" ", 1) for line in fake.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines['gencli_generation_tokens_total{model_name="fake"}']) >= 4
    assert float(lines['gencli_http_replies_total{status="200"}']) >= 1
    bucket = 'gencli_time_to_first_token_seconds_bucket{model_name="fake",le="+Inf"}'
    assert float(lines[bucket]) == float(lines['gencli_time_to_first_token_seconds_count{model_name="fake"}'])
    assert 'gencli_num_requests_running{model_name="fake"}' in lines


def test_a_key_guards_every_route_but_health():
    with serve(Conditions(rules=AccessRules(key="secret"))) as client:
        assert client.get("/health").status_code == 200
        for path in ("/v1/models", "/metrics", "/props", "/version", "/tokenizer_info", "/nothing"):
            reply = client.get(path)
            assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")
        assert client.post("/tokenize", json={"prompt": "a"}).status_code == 401
        for name, key in (
            ("authorization", "Bearer secret"),
            ("authorization", "Bearer secret "),
            ("x-api-key", "secret"),
        ):
            assert client.get("/v1/models", headers={name: key}).status_code == 200, key
        wrong = ("Bearer secre", "Bearer invalid", "Bearer", "Basic secret", "secret")
        for headers in ({}, *({"authorization": key} for key in wrong)):
            reply = client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
            assert (reply.status_code, "secret" in reply.text) == (401, False), headers


def test_a_foreign_name_of_the_host_is_refused(fake):
    cases = [("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 403), ("", 403)]
    for host, status in cases:
        assert fake.get("/v1/models", headers={"host": host}).status_code == status, host


def test_other_origins_are_off_unless_allowed(fake):
    origin = {"origin": "http://page.example"}
    assert "access-control-allow-origin" not in fake.get("/v1/models", headers=origin).headers
    with serve(Conditions(rules=AccessRules(origins=("http://page.example",), hosts=("box",)))) as client:
        asked = client.options("/v1/completions", headers=origin)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, origin["origin"])
        assert client.get("/v1/models", headers={"host": "box:1"}).status_code == 200


def test_lenient_drops_fields_and_says_so():
    with serve(Conditions(is_lenient=True)) as client:
        body = client.post("/v1/completions", json={"prompt": "a", "top_kk": 5}).json()
    assert body["dropped_fields"] == ["top_kk"]


def test_every_reply_has_an_id(fake):
    first, second = (fake.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second
