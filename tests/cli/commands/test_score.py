"""`gencli score`, and log-probabilities of run, chat and batch on the command line."""

import json

import pytest

ROWS = [
    {"text": "Once upon a time, a kind fox named Clover lived in a house."},
    {"id": "q", "context": "Brindle is", "choices": [" a town.", " Biscuit."]},
    {"context": "Once upon a", "continuation": " time"},
    {"nothing": 1},
]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_rows_are_scored_and_a_faulty_one_fails_alone(gencli, rows):
    done = gencli("score", "-q", "--format", "jsonl", "--tokens", "1", rows)
    text, choices, pair, faulty = map(json.loads, done.out.splitlines())
    assert done.code == 7
    assert text["scored"] == text["tokens"] == len(text["token_scores"])
    assert text["convention"] == {"name": "lm-eval", "window": 1024, "bos": True}
    assert [choices["id"], choices["best"]["sum"], len(choices["choices"])] == ["q", 0, 2]
    assert pair["greedy"] is True
    assert faulty["error"]["type"] == "UsageError"


def test_the_convention_is_printed_with_the_numbers(gencli):
    strided = ["--convention", "strided", "--window", "8", "--stride", "4"]
    done = gencli("score", *strided, stdin=b"Once upon a time\n")
    assert "convention strided (window 8, stride 4)" in done.out
    assert "bits per byte" in done.out
    tokens = gencli("score", "--tokens", "1", stdin=b"Once\n")
    assert (tokens.code, "tokens" in tokens.err) == (2, True)


def test_log_probabilities_of_a_run_go_to_stderr_or_into_the_record(gencli):
    plain = gencli("run", "-t", "0", "--max-tokens", "3", "Once upon")
    shown = gencli("run", "-t", "0", "--max-tokens", "3", "--logprobs", "2", "Once upon")
    asked = ["run", "-t", "0", "--max-tokens", "3", "--logprobs", "2"]
    record = gencli(*asked, "--format", "json", "Once upon").json
    assert shown.out == plain.out
    assert "best under the model" in shown.err
    assert [len(entry["top"]) for entry in record["logprobs"]] == [2, 2, 2]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in record["logprobs"])


def test_a_prompt_alone_is_scored_and_a_chat_shows_scores(gencli):
    done = gencli("run", "--prompt-logprobs", "0", "--max-tokens", "0", "--format", "json", "Once upon")
    record = done.json
    assert (record["text"], record["completion_tokens"], record["prompt_logprobs"][0]) == ("", 0, None)
    assert record["prompt_logprobs"][-1]["rank"] == 1

    done = gencli("chat", "-t", "0", "--max-tokens", "2", "--logprobs", "0", stdin=b"Hello\n")
    assert "processed" in done.err


def test_what_does_not_go_together_is_refused_by_name(gencli):
    for flags, said in [
        (["--logprobs", "1", "-q"], ["--quiet", "--logprobs"]),
        (["--max-tokens", "0"], ["--max-tokens", "--prompt-logprobs"]),
        (["--max-tokens", "0", "--prompt-logprobs", "1", "-n", "2"], ["--max-tokens", "-n"]),
        (["--logprobs", "1", "--finish-open", "--json"], ["--logprobs", "--finish-open"]),
    ]:
        done = gencli("run", *flags, "Once")
        assert done.code == 2, flags
        assert all(name in done.err for name in said), flags
