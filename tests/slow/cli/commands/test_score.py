"""`gencli score`, and log-probabilities of run, chat and batch on the command line."""

import csv
import io
import json

import pytest


def test_a_table_of_a_batch_has_a_column_of_them(gencli):
    given = b'{"prompt": "One", "logprobs": 0, "max_tokens": 2}\n{"prompt": "Two", "max_tokens": 2}\n'
    done = gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=given)
    one, two = csv.DictReader(io.StringIO(done.out))
    assert len(json.loads(one["logprobs"])) == 2
    assert two["logprobs"] == ""
    assert "logprobs" not in gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=b"One\n").out


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


def test_log_probabilities_of_a_run_go_to_stderr_or_into_the_record(gencli):
    plain = gencli("run", "-t", "0", "--max-tokens", "3", "Once upon")
    shown = gencli("run", "-t", "0", "--max-tokens", "3", "--logprobs", "2", "Once upon")
    asked = ["run", "-t", "0", "--max-tokens", "3", "--logprobs", "2"]
    record = gencli(*asked, "--format", "json", "Once upon").json
    assert shown.out == plain.out
    assert "best under the model" in shown.err
    assert [len(entry["top"]) for entry in record["logprobs"]] == [2, 2, 2]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entry in record["logprobs"])
