"""The front door: a model that is loaded once, and texts as the command line would write them."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from gencli import SamplingParams
from gencli.errors import GencliWarning, GenerationError
from tests.runtime.test_llm import fake, llm

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
