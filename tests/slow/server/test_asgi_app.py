"""The routes around the texts, and several models in one server."""

from concurrent.futures import ThreadPoolExecutor

from tests.server.conftest import idle, serve

BODIES = [
    {}, {"prompt": {}}, {"prompt": [[]]}, {"prompt": [-1]}, {"prompt": [10**9]}, {"prompt": ""},
    {"prompt": "a", "n": 0}, {"prompt": "a", "n": -1}, {"prompt": "a", "n": 1.5}, {"prompt": "a", "n": "x"},
    {"prompt": "a", "max_tokens": -5}, {"prompt": "a", "max_tokens": 10**30}, {"prompt": "a", "top_p": 7},
    {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "temperature": -1}, {"prompt": "a", "seed": -7},
    {"prompt": "a", "stop": 5}, {"prompt": "a", "stop": [1]}, {"prompt": "a", "stop_regex": "("},
    {"prompt": "a", "stop_token_ids": [10**6]}, {"prompt": "a", "logit_bias": {"999999": 1}},
    {"prompt": "a", "regex": "("}, {"prompt": "a", "grammar": "x y z: ("},
    {"prompt": "a", "lark": "start: ("},
    {"prompt": "a", "json_schema": {"type": "nonsense"}}, {"prompt": "a", "json_schema": {"$ref": "#/x"}},
    {"prompt": "a", "json_schema": {"$ref": "http://example.com/x"}}, {"prompt": "a", "tools": [{}]},
    {"prompt": "a", "chain": "nonsense"}, {"prompt": "a", "stages": {"nonsense": 1}},
    {"prompt": "a", "stages": []}, {"prompt": "a", "preset": "nonsense"}, {"prompt": "a", "preset": 5},
    {"prompt": "a", "structural_tag": {}}, {"prompt": "a", "draft": "/etc/passwd"},
    {"prompt": "a", "top_kk": 1},
    {"prompt": "a", "contrast": "/etc/passwd"}, {"prompt": "a", "negative": 5}, {"prompt": "a", "model": 5},
    {"prompt": "a", "stream_options": 5, "stream": True}, {"prompt": "a" * 2000}, {"prompt": "a", "echo": 1},
    {"prompt": "a", "session": "s", "n": 2}, {"prompt": "a", "choice": []},
    {"prompt": "a", "json": True, "regex": "a"},
    {"prompt": "a", "beams": 3, "temperature": 0.5, "best_of": 2},
    {"prompt": "a", "contrastive_alpha": 0.6, "n": 2}, {"prompt": "a", "contrastive_alpha": 7},
    {"prompt": "a", "contrastive_alpha": 0.6, "contrastive_k": 120}, {"prompt": "a", "contrastive_k": 2},
]  # fmt: skip


def test_a_hostile_body_is_a_4xx_with_its_reason(fake):
    for body in BODIES:
        reply = fake.post("/v1/completions", json={"max_tokens": 2, **body})
        assert 400 <= reply.status_code < 500, (body, reply.text)
        error = reply.json()["error"]
        assert error["message"], body
        assert error["type"] == "invalid_request_error", body
        assert "/work" not in error["message"], body
        assert idle(fake.serving), body
        assert fake.get("/health").status_code == 200, body


def test_models_that_run_at_the_same_time_give_the_texts_that_they_give_alone():
    bodies = [
        {"prompt": "Once", "max_tokens": 12, "seed": seed, "model": "ab"[seed % 2], "top_p": 0.9}
        for seed in range(4)
    ]
    with serve(names=("a", "b"), model="tiny", dtype="float32") as client:

        def text(body):
            return client.post("/v1/completions", json=body).json()["choices"][0]["text"]

        alone = [text(body) for body in bodies]
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(text, bodies)] == alone
        assert text({**bodies[0], "model": "b"}) == alone[0]
