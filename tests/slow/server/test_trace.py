"""The explanations of tokens through HTTP: those of `gencli run` in any company, bounded, refused by name."""

from gencli.cli.app import main
from gencli.explain.trace_file import read_trace
from tests.server.conftest import post
from tests.server.test_trace import BODY, CHAT, facts, streamed


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
        body = {**BODY, "return_token_ids": True, **more}
        plain = post(tiny, "completions", **{**body, "trace": None})["choices"][0]
        explained = post(tiny, "completions", **body)["choices"][0]
        assert "trace" not in plain, more
        assert [one["id"] for one in explained.pop("trace")] == explained["token_ids"], more
        assert explained == plain, more


def test_the_records_are_those_of_a_run(tiny, tmp_path, capfd):
    file = tmp_path / "t.jsonl"
    flags = ("--model", "tiny", "--dtype", "float32", "--seed", "7", "--max-tokens", "9", "--trace-top", "3")
    own = ("--temperature", "1.5", "--top-k", "12", "--trace", str(file), BODY["prompt"])
    assert main(["run", *flags, *own]) == 0, capfd.readouterr()
    (wanted,) = read_trace(file.read_text().splitlines())
    reply = post(tiny, "completions", **BODY)
    (choice,) = reply["choices"]
    assert facts(choice["trace"]) == facts(wanted.records)
    assert {(one["run"], one["sample"]) for one in choice["trace"]} == {(reply["id"], 0)}
    assert streamed(tiny, **BODY)[0].keys() == {0}
    assert facts(streamed(tiny, **BODY)[0][0]) == facts(wanted.records)


def test_of_an_answer_that_was_tried_again_only_the_tokens_that_count_are_explained(fake):
    body = {"prompt": "abc", "regex": "[ab]{4}|c[ab]{3}z", "allow_ids": [97, 98, 99, 257], "retries": 5,
            "trace": 2, "max_tokens": 12, "return_token_ids": True, "temperature": 3}  # fmt: skip
    for seed in range(6):
        for is_stream in (False, True):
            if is_stream:
                ((records,), (ids,)) = (found.values() for found in streamed(fake, **body, seed=seed))
            else:
                (choice,) = post(fake, "completions", **body, seed=seed)["choices"]
                records, ids = choice["trace"], choice["token_ids"]
            assert [one["id"] for one in records] == ids
            assert [one["pos"] for one in records] == list(range(len(ids)))
