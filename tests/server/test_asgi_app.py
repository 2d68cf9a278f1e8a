"""The routes around the texts, the models behind them, and who may use them."""

import re
from itertools import product

import pytest
from starlette.testclient import TestClient

from gencli.config.layers import gather
from gencli.errors import ModelError, UsageError
from gencli.runtime.model_loading import ModelChoice, check_memory
from gencli.server.access import AccessRules
from gencli.server.opening import loading_app
from gencli.server.serve_options import served_names
from gencli.server.serving import Conditions, planned_batch
from tests.server.conftest import refusal, serve

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
    reply = fake.post("/v1/completions", content=b'{"prompt":"a"}', headers={"content-type": "text/plain"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_a_prompt_that_is_too_long_is_refused_before_a_stream(fake):
    turn = {"role": "user", "content": "a" * 100}
    for stream, body in product(
        [False, True],
        [
            {"prompt": "a" * 1024}, {"prompt": [97] * 1024},
            {"prompt": "a" * 1_000_000},  # too many characters to count their tokens
            {"messages": [turn] * 20},
        ],
    ):  # fmt: skip
        path = "chat/completions" if "messages" in body else "completions"
        error = refusal(fake, path, **body, stream=stream)
        assert error["code"] == "context_length_exceeded", (path, stream)
        assert "1024" in error["message"], (path, stream)
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


def test_a_prompt_and_a_conversation_have_tokens_and_the_tokenizer_its_facts(tiny):
    ids = tiny.post("/tokenize", json={"prompt": "Once upon a time"}).json()
    assert ids["count"] == len(ids["tokens"])
    text = tiny.post("/detokenize", json={"tokens": ids["tokens"]}).json()["prompt"]
    assert text.endswith("Once upon a time")
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


def test_metrics_count_drafts_by_position():
    with serve(draft="ngram", draft_tokens=2) as client:
        body = {"prompt": "abcabcabcabcabc", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
        client.post("/v1/completions", json=body)
        text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    labels = 'model_name="fake"'
    drafts, tokens, accepted = (
        int(lines[f"gencli_spec_decode_num_{kind}_total{{{labels}}}"])
        for kind in ("drafts", "draft_tokens", "accepted_tokens")
    )
    assert 0 < drafts <= tokens <= 2 * drafts
    name = "gencli_spec_decode_num_accepted_tokens_per_pos_total"
    assert accepted == sum(int(lines[f'{name}{{{labels},position="{i}"}}']) for i in (0, 1))
    assert float(lines[f"gencli_spec_decode_verify_seconds_total{{{labels}}}"]) > 0


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


def test_every_reply_has_an_id(fake):
    first, second = (fake.get("/health").headers["x-request-id"] for _ in range(2))
    assert first != second


def tokens(client, **body):
    return client.post("/tokenize", json=body).json()["tokens"]


def test_special_tokens_are_text_without_parse_special(tiny):
    bos = tiny.get("/tokenizer_info").json()["bos_token"]
    for key in ("content", "prompt"):
        plain = {key: f"a{bos}b", "add_special_tokens": False}
        assert tokens(tiny, **plain)[1] == tokens(tiny, prompt="")[0], key
        assert tokens(tiny, **plain, parse_special=True) == tokens(tiny, **plain), key
        ids = tokens(tiny, **plain, parse_special=False)
        assert tokens(tiny, prompt="")[0] not in ids, key
        assert tiny.post("/detokenize", json={"tokens": ids}).json()["prompt"] == f"a{bos}b", key


def test_a_conversation_is_tokenized_as_a_chat_sends_it(tiny):
    for given in ({}, {"add_generation_prompt": False}, {"continue_final_message": True}):
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
        body = {"messages": messages, **given}
        reply = tiny.post("/v1/chat/completions", json={**body, "max_tokens": 1, "return_token_ids": True})
        assert tokens(tiny, **body, chat_template=None) == reply.json()["prompt_token_ids"], given


def test_wrong_fields_of_tokenize_are_named(tiny):
    messages = [{"role": "user", "content": "hi"}]
    for body, param in [
        ({"messages": messages, "parse_special": False}, "parse_special"),
        ({"messages": messages, "continue_final_message": True}, "continue_final_message"),
        ({"content": "a", "parse_special": "no"}, "parse_special"),
        ({"content": "a", "chat_template": "x"}, "chat_template"),
    ]:
        reply = tiny.post("/tokenize", json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body


def test_tokens_are_the_text(tiny):
    for text in ["What is the capital of France ?", "媽 and 🤗", "a\n\tb", ""]:
        ids = tokens(tiny, content=text)
        assert tiny.post("/detokenize", json={"tokens": ids}).json()["content"] == text, text
        pieces = tokens(tiny, content=text, with_pieces=True)
        assert [piece["id"] for piece in pieces] == ids, text
    assert "".join(piece["piece"] for piece in tokens(tiny, content="Once", with_pieces=True)) == "Once"


def test_a_beginning_of_text_is_added_if_asked_for(tiny):
    plain, special = (tokens(tiny, content="a", add_special=added) for added in (False, True))
    assert special == [special[0], *plain]
    bos = tiny.get("/tokenizer_info").json()["bos_token"]
    assert tiny.post("/detokenize", json={"tokens": special[:1]}).json()["prompt"] == bos
    assert tokens(tiny, prompt="a") == special
    assert tokens(tiny, prompt="a", add_special_tokens=False) == plain


def test_a_wrong_value_names_its_field_and_the_server_answers_on(fake):
    cases = [
        ({"temperature": 999_999}, None), ({"top_p": -1}, "top_p"), ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"min_p": 2}, "min_p"), ({"top_k": 1.5}, "top_k"), ({"n": 16_384}, "n"),
        ({"best_of": 1, "n": 2}, "n"), ({"stop": ["x"] * 200}, "stop"),
        ({"frequency_penalty": "much"}, "frequency_penalty"), ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**70}, "seed"), ({"min_tokens": 9, "max_tokens": 4}, None),
        ({"logit_bias": {"97": 1e9}}, None), ({"prompt": "\u0000"}, None), ({"top_p": 7}, "top_p"),
        ({"repeat_penalty": -1}, "repeat_penalty"), ({"max_new_tokens": -5}, "max_new_tokens"),
        ({"stop_regex": "("}, "stop_regex"), ({"logit_bias": {"9999": 1}}, "logit_bias"),
        ({"regex": "("}, "regex"), ({"stages": {"nope": 1}}, "stages"), ({"draft": "x"}, "draft"),
    ]  # fmt: skip
    for body, param in cases:
        reply = fake.post("/v1/completions", json={"prompt": "a", "max_tokens": 2, **body})
        if param is None:
            assert reply.status_code in (200, 400), body
        else:
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), body
        assert fake.get("/health").status_code == 200, body


def test_an_error_about_an_option_or_a_stage_in_a_field_names_the_field():
    pointer = {"json_schema": {"type": "object"}, "select": "a"}
    cases = [
        ({"draft_tree": "1x1x99"}, "draft_tree"), ({"draft_tree": ""}, "draft_tree"),
        ({"draft_tree": [[0], [2]]}, "draft_tree"), ({"draft_tree": 5}, "draft_tree"),
        ({"beams": 2}, "beams"), ({"contrastive_alpha": 0.5}, "contrastive_alpha"),
        ({"guidance": 2, "negative": "x", "contrast": "x"}, "guidance"), (pointer, "select"),
        ({"chain": [[0]]}, "chain"), ({"chain": [{"lz": "x"}]}, "chain"), ({"samplers": "x: ("}, "samplers"),
        ({"stages": {"lz": {"x": 1}}}, "stages"), ({"stages": {"lz": {}}}, "stages"),
        ({"stages": {"bias": {"zzz": 1}}}, "stages"), ({"stages": {"tail": 5}}, "stages"),
        ({"encoder_no_repeat_ngram_size": -5}, "encoder_no_repeat_ngram_size"),
        ({"json": True, "fields": {"/a": 5}}, "fields"), ({"preset": "nope"}, "preset"),
        ({"session": "x", "best_of": 2, "temperature": 1}, "session"),
    ]  # fmt: skip
    with serve(draft="ngram") as client:
        for body, param in cases:
            error = refusal(client, "completions", prompt="a", **body)
            assert error["param"] == param, (body, error)


ASKED = {"prompt": "hi", "max_tokens": 5, "seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def two_models():
    with serve(names=("a", 'b"')) as client:
        yield client


def test_a_request_names_its_model(two_models):
    for body, name in ((ASKED, "a"), ({**ASKED, "model": ""}, "a"), ({**ASKED, "model": 'b"'}, 'b"')):
        assert two_models.post("/v1/completions", json=body).json()["model"] == name
    assert [model["id"] for model in two_models.get("/v1/models").json()["data"]] == ["a", 'b"']
    assert two_models.get("/v1/models/a").json()["id"] == "a"
    assert two_models.get("/props", params={"model": 'b"'}).json()["model_path"] == 'b"'
    assert two_models.get("/props").json()["model_path"] == "a"


def test_an_unknown_name_is_a_404_that_names_what_is_known(two_models):
    cases = [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/chain", {}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [97]}),
    ]
    for path, more in cases:
        reply = two_models.post(path, json={"model": "c", **more})
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found"), path
        assert "Known: a, b" in reply.json()["error"]["message"], path
    for path in ("/props", "/tokenizer_info"):
        assert two_models.get(path, params={"model": "c"}).status_code == 404


def test_metrics_are_apart_with_one_type_line_each(two_models):
    def generated():
        lines = two_models.get("/metrics").text.splitlines()
        kinds = [line for line in lines if line.startswith("#")]
        assert len(kinds) == len(set(kinds))
        found = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return [
            float(found[f'gencli_generation_tokens_total{{model_name="{name}"}}']) for name in ("a", 'b\\"')
        ]

    before = generated()
    two_models.post("/v1/completions", json={**ASKED, "model": 'b"'})
    assert generated() == [before[0], before[1] + 5]


def test_a_full_model_leaves_room_to_the_other():
    two_models = serve(Conditions(max_queue=0), names=("a", "b"), max_batch=1)
    with two_models as client, client.serving.admission.enter():
        assert client.post("/v1/completions", json={**ASKED, "model": "a"}).status_code == 429
        assert client.post("/v1/completions", json={**ASKED, "model": "b"}).status_code == 200


def test_names_are_the_given_ones_then_those_of_folders():
    assert served_names(["/x/one", "org/two"], ["1"]) == ["1", "org/two"]
    assert served_names(["./one"], []) == ["one"]
    with pytest.raises(UsageError, match="served_name"):
        served_names(["one"], ["1", "2"])
    with pytest.raises(UsageError, match="Two models"):
        served_names(["/x/one", "/y/one"], [])


@pytest.fixture
def loading():
    return TestClient(loading_app(AccessRules(key="secret")), base_url="http://localhost")


KEY = {"authorization": "Bearer secret"}


def test_what_needs_a_model_is_a_503_that_says_when_to_ask_again(loading):
    cases = [("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/tokenize")]
    for method, path in cases:
        reply = loading.request(method, path, headers=KEY)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "loading"), path
        assert int(reply.headers["retry-after"]) > 0, path
        assert loading.request(method, path).status_code == 401, path


def test_what_needs_none_answers(loading):
    health = loading.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "loading"})
    assert "retry-after" in health.headers
    assert loading.get("/version", headers=KEY).json()["version"]
    assert loading.get("/").headers["content-type"].startswith("text/html")


def test_the_page_is_the_same_file_on_every_server_and_needs_no_key(fake):
    with serve(Conditions(rules=AccessRules(key="secret")), names=("a name",)) as client:
        reply = client.get("/")
        assert (reply.status_code, reply.content) == (200, fake.get("/").content)
        assert client.post("/").status_code == 405
        assert client.get("/", headers={"host": "evil.example"}).status_code == 403
        assert client.get("/page").status_code == 401


def test_the_page_loads_nothing_and_runs_only_its_own_script(fake):
    reply = fake.get("/")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert not re.search(r"https?://|src=|@import", reply.text)
    assert reply.text.count("<script>") == 1


TINY, DRAFT = ModelChoice("tiny"), ModelChoice("tiny-draft")


def test_a_model_that_does_not_fit_beside_the_others_is_refused_by_name():
    free = 2**62
    check_memory([TINY, ModelChoice("fake"), DRAFT], free=free)
    with pytest.raises(ModelError, match="assets/tiny needs"):
        check_memory([TINY], free=0)
    while fits(TINY, free // 2):
        free //= 2
    with pytest.raises(ModelError, match="assets/tiny needs .* free beside tiny[.]") as raised:
        check_memory([TINY, TINY], free=free)
    assert "`memory_check` = off" in raised.value.hint
    check_memory([TINY, ModelChoice("tiny", memory_check=False)], free=free)


def fits(choice, free):
    try:
        check_memory([choice], free=free)
    except ModelError:
        return False
    return True


def test_the_batch_of_several_models_has_room_in_all():
    tiny, draft, fake = (gather({"model": name}, {}) for name in ("tiny", "tiny-draft", "fake"))
    assert planned_batch([fake]) == planned_batch([fake, fake]) == 64
    assert 1 <= planned_batch([tiny, draft]) <= planned_batch([tiny]) == planned_batch([tiny, fake])
    with pytest.raises(UsageError, match="draft"):
        planned_batch([gather({"model": "tiny", "draft": "ngram"}, {}), draft])
