"""Cases of completions in suites of other servers: prompts, seeds, samples, streams, log-probabilities."""

from concurrent.futures import ThreadPoolExecutor

from tests.server.conftest import events, idle, serve
from tests.server.test_cases_completions import TEXT, post, texts


def test_samples_differ_and_end_for_themselves(fake):
    body = {"prompt": "hi", "n": 3, "max_tokens": 900, "seed": 42, "logprobs": 0}
    choices = post(fake, **body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["text"] for choice in choices}) == 3
    assert len({len(choice["logprobs"]["tokens"]) for choice in choices}) > 1
    chunks = events(fake.post("/v1/completions", json={**body, "stream": True}))
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    assert sum(part["finish_reason"] is not None for part in parts) == 3
    joined = ["".join(part["text"] for part in parts if part["index"] == number) for number in range(3)]
    assert joined == [choice["text"] for choice in choices]


def test_requests_share_the_slots():
    for slots, requests in [(1, 3), (2, 2), (2, 4), (4, 2), (4, 6)]:
        with serve(max_batch=slots) as client, ThreadPoolExecutor(requests) as pool:
            found = list(pool.map(lambda seed: texts(client, **{**TEXT, "seed": seed}), range(requests)))
            alone = [texts(client, **{**TEXT, "seed": seed}) for seed in range(requests)]
            assert found == alone, (slots, requests)
            assert idle(client.serving), (slots, requests)


def test_a_seed_gives_one_text_whatever_is_kept_and_however_many_run(fake):
    for slots in [1, 4]:
        expected = texts(fake, **TEXT)
        with serve(max_batch=slots) as client, ThreadPoolExecutor(6) as pool:
            found = list(
                pool.map(lambda cached: texts(client, **TEXT, cache_prompt=cached), [True, False] * 3)
            )
        assert found == [expected] * 6, slots
    assert len({texts(fake, **{**TEXT, "seed": seed})[0] for seed in range(4)}) == 4
