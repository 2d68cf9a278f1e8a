"""/v1/completions and /v1/chat/completions through HTTP: the texts of the library, streamed or not."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from tests.server.conftest import events
from tests.server.test_completions import TEXT, llm, post


def test_structures_hold(tiny):
    cases = [
        ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
        ({"guided_choice": ["red", "green"]}, lambda text: text in ("red", "green")),
        ({"regex": "[0-9]{3}"}, lambda text: len(text) == 3 and text.isdecimal()),
        ({"grammar": 'root ::= "a"{5,5}'}, lambda text: text == "aaaaa"),
    ]  # fmt: skip
    for (fields, check), stream in product(cases, [False, True]):
        body = {"prompt": "JSON: ", "max_tokens": 200, "seed": 1, **fields}
        if stream:
            chunks = events(tiny.post("/v1/completions", json={**body, "stream": True}))
            choice = {"text": "".join(chunk["choices"][0]["text"] for chunk in chunks)}
            assert chunks[-1]["choices"][0]["finish_reason"] == "stop", (stream, fields)
        else:
            (choice,) = post(tiny, "completions", **body)["choices"]
            assert choice["finish_reason"] == "stop", (stream, fields)
        assert check(choice["text"]), (stream, fields)


def test_neighbours_change_no_text(tiny, llm):
    def ask(number):
        body = {**TEXT, "seed": number, "prompt": f"Story {number}:", "n": 1 + number % 2}
        return [choice["text"] for choice in post(tiny, "completions", **body)["choices"]]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    alone = [
        llm.generate(f"Story {number}:", seed=number, n=1 + number % 2, max_tokens=20,
                     temperature=0.8, top_p=0.9).texts
        for number in range(8)
    ]  # fmt: skip
    assert together == alone
