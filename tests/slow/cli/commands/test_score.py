"""`gencli score`, and log-probabilities of run, chat and batch on the command line."""

import csv
import io
import json


def test_a_table_of_a_batch_has_a_column_of_them(gencli):
    given = b'{"prompt": "One", "logprobs": 0, "max_tokens": 2}\n{"prompt": "Two", "max_tokens": 2}\n'
    done = gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=given)
    one, two = csv.DictReader(io.StringIO(done.out))
    assert len(json.loads(one["logprobs"])) == 2
    assert two["logprobs"] == ""
    assert "logprobs" not in gencli("batch", "-q", "--seed", "1", "--format", "csv", stdin=b"One\n").out
