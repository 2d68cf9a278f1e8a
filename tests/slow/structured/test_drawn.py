"""Documents that a model draws at a high temperature under the mask are valid."""

import json

import pytest

from gencli import LLM

NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 6}
PATTERNS = [
    r"^\p{Lu}{2}\P{L}{1,3}[\p{Script=Greek}\d]$",
    r"^a\b.{1,4}\bfoo\b.?$",
    r"^(?!.*\s)[\W\d]\S\D\W$",
    r"^x(?!\d\d)\w{3}(?=!)..$",
    "^[^a]{2,4}$",
]


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_what_is_drawn_under_a_mask_that_enforces_all_is_valid(backend):
    with LLM("tiny", dtype="float32", max_batch=4) as llm:
        for schema in (NUMBERS, *({"type": "string", "pattern": pattern} for pattern in PATTERNS)):
            out = llm.generate(
                ["a", "b", "c"],
                json_schema=json.dumps(schema),
                grammar_backend=backend,
                temperature=4.0,
                seed=3,
                max_tokens=48,
            )
            assert [one.samples[0].error for one in out] == [None] * 3, schema
