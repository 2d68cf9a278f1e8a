"""The front door: a model that is loaded once, and texts as the command line would write them.

Explanations of tokens in Python: the records of `gencli run --trace`, beside the text they explain.
"""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from gencli import SamplingParams
from gencli.cli.app import main
from gencli.errors import GencliWarning, GenerationError
from gencli.explain.trace_file import read_trace
from tests.runtime.test_llm import PARAMS, fake, llm, tracing_fake

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
NORA = "Nora is 41 years old and works as a pilot in Quito.\n"


def test_a_structured_output_is_parsed(llm):
    @dataclass
    class Person:
        name: str
        age: int

    for schema in (SCHEMA, Person):
        out = llm.generate(NORA, json_schema=schema, temperature=0, max_tokens=60)
        assert out.parsed == json.loads(out.text)
        assert set(out.parsed) == {"name", "age"}
    with pytest.warns(GencliWarning, match="has 12 tokens, but there is room for 4"):
        out = llm.generate(NORA, json_schema=SCHEMA, temperature=0, max_tokens=4)
    assert "not valid" in out.error
    with pytest.raises(GenerationError, match="not valid"):
        assert out.parsed


def test_a_sample_that_fails_leaves_the_others_alone(fake):
    nothing, free = SamplingParams(suppress_ids=list(range(258))), SamplingParams(seed=1)
    broken, good = fake.generate(["a", "b"], [nothing, free])
    assert broken.finish_reason == "error"
    assert "No token is left" in broken.error
    assert good == fake.generate(["x", "b"], SamplingParams(seed=1))[1]


def test_importing_gencli_imports_no_torch():
    code = "import gencli, sys; gencli.SamplingParams(top_p=0.5); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def facts(records):
    return [{key: value for key, value in one.items() if key not in ("v", "kind", "run")} for one in records]


def test_records_are_those_of_the_command_line(tracing_fake, tmp_path, capfd):
    file = tmp_path / "t.jsonl"
    flags = "--model fake --temperature 1.6 --top-k 6 --repetition-penalty 1.2 --max-tokens 10 --seed 4 -n 2"
    assert main(["run", *flags.split(), "--trace-top", "3", "--trace", str(file), "the cat", "a dog"]) == 0
    wanted = read_trace(file.read_text().splitlines())
    found = tracing_fake.generate(["the cat", "a dog"], PARAMS, n=2)
    samples = [sample for one in found for sample in one.samples]
    assert sorted(facts(sample.trace)[0]["id"] for sample in samples)
    by_key = {(str(int(text.key[0]) - 1), text.key[1]): facts(text.records) for text in wanted}
    assert by_key == {
        (sample.trace[0]["run"], sample.trace[0]["sample"]): facts(sample.trace) for sample in samples
    }
    assert found[1].trace == found[1].samples[0].trace
    assert json.loads(json.dumps(found[0].trace[0])) == found[0].trace[0]


def test_the_text_is_that_without_a_trace(tracing_fake):
    for values in (
        {},
        {"best_of": 3},
        {"draft": "ngram"},
        {"regex": "[ab]{4}|cz", "retries": 2, "grammar_backend": "llguidance"},
    ):
        own = {"allow_ids": [97, 98, 99, 257], **values}
        plain = tracing_fake.generate("the cat", PARAMS, trace=None, **own)
        traced = tracing_fake.generate("the cat", PARAMS, **own)
        assert (plain.text, plain.trace) == (traced.text, ()), values
        assert "".join(record["text"] for record in traced.trace) == traced.text, values


def test_a_text_that_failed_has_its_last_attempt(tracing_fake):
    values = {"regex": "a[ab]{3}z", "allow_ids": [97, 98], "retries": 2, "grammar_backend": "llguidance"}
    failed = tracing_fake.generate("the cat", PARAMS, **values)
    assert failed.error is not None
    assert "".join(record["text"] for record in failed.trace) == failed.text
    assert len(failed.trace) == 4
