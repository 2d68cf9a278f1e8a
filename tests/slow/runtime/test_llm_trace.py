"""Explanations of tokens in Python: the records of `gencli run --trace`, beside the text they explain."""

import json

from gencli.cli.app import main
from gencli.explain.trace_file import read_trace
from tests.runtime.test_llm_trace import PARAMS, fake


def facts(records):
    return [{key: value for key, value in one.items() if key not in ("v", "kind", "run")} for one in records]


def test_records_are_those_of_the_command_line(fake, tmp_path, capfd):
    file = tmp_path / "t.jsonl"
    flags = "--model fake --temperature 1.6 --top-k 6 --repetition-penalty 1.2 --max-tokens 10 --seed 4 -n 2"
    assert main(["run", *flags.split(), "--trace-top", "3", "--trace", str(file), "the cat", "a dog"]) == 0
    wanted = read_trace(file.read_text().splitlines())
    found = fake.generate(["the cat", "a dog"], PARAMS, n=2)
    samples = [sample for one in found for sample in one.samples]
    assert sorted(facts(sample.trace)[0]["id"] for sample in samples)
    by_key = {(str(int(text.key[0]) - 1), text.key[1]): facts(text.records) for text in wanted}
    assert by_key == {
        (sample.trace[0]["run"], sample.trace[0]["sample"]): facts(sample.trace) for sample in samples
    }
    assert found[1].trace == found[1].samples[0].trace
    assert json.loads(json.dumps(found[0].trace[0])) == found[0].trace[0]


def test_the_text_is_that_without_a_trace(fake):
    for values in (
        {},
        {"best_of": 3},
        {"draft": "ngram"},
        {"regex": "[ab]{4}|cz", "retries": 2, "grammar_backend": "llguidance"},
    ):
        own = {"allow_ids": [97, 98, 99, 257], **values}
        plain = fake.generate("the cat", PARAMS, trace=None, **own)
        traced = fake.generate("the cat", PARAMS, **own)
        assert (plain.text, plain.trace) == (traced.text, ()), values
        assert "".join(record["text"] for record in traced.trace) == traced.text, values


def test_a_text_that_failed_has_its_last_attempt(fake):
    values = {"regex": "a[ab]{3}z", "allow_ids": [97, 98], "retries": 2, "grammar_backend": "llguidance"}
    failed = fake.generate("the cat", PARAMS, **values)
    assert failed.error is not None
    assert "".join(record["text"] for record in failed.trace) == failed.text
    assert len(failed.trace) == 4
