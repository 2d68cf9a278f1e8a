"""The explanations of tokens through HTTP: those of `gencli run` in any company, bounded, refused by name."""

from tests.server.test_trace import BODY, CHAT, facts, post, streamed


def test_each_answer_has_its_own_in_any_company(tiny):
    for path, body in [("completions", BODY), ("chat/completions", CHAT)]:
        many = {**body, "n": 3}
        if path == "completions":
            many["prompt"] = [body["prompt"], "Twice"]
        choices = post(tiny, path, **many)["choices"]
        for choice in choices:
            assert [one["pos"] for one in choice["trace"]] == list(range(len(choice["trace"]))), path
            assert {one["sample"] for one in choice["trace"]} == {choice["index"]}, path
        assert facts(choices[0]["trace"]) == facts(post(tiny, path, **body)["choices"][0]["trace"]), path
        traces, _ = streamed(tiny, path, **many)
        assert {choice["index"]: facts(choice["trace"]) for choice in choices} == {
            index: facts(trace) for index, trace in traces.items()
        }, path


def test_the_text_is_that_without_and_every_token_of_it_is_explained(tiny):
    for more in [{}, {"best_of": 3}, {"draft": "ngram"}, {"regex": "[a-z ]{4,40}", "retries": 2}]:
        plain = post(tiny, **{**BODY, "trace": None, "return_token_ids": True, **more})["choices"][0]
        explained = post(tiny, **{**BODY, "return_token_ids": True, **more})["choices"][0]
        assert "trace" not in plain, more
        assert [one["id"] for one in explained.pop("trace")] == explained["token_ids"], more
        assert explained == plain, more
