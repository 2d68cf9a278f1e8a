"""Several models in one server: chosen by name, counted apart."""

from concurrent.futures import ThreadPoolExecutor

from tests.server.conftest import serve


def test_models_that_run_at_the_same_time_give_the_texts_that_they_give_alone():
    bodies = [
        {"prompt": "Once", "max_tokens": 20, "seed": seed, "model": "ab"[seed % 2], "top_p": 0.9}
        for seed in range(8)
    ]
    with serve(names=("a", "b"), model="tiny", dtype="float32") as client:

        def text(body):
            return client.post("/v1/completions", json=body).json()["choices"][0]["text"]

        alone = [text(body) for body in bodies]
        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(text, bodies)] == alone
        assert text({**bodies[0], "model": "b"}) == alone[0]
