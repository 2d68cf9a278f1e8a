"""What each number format costs on real text, and that none makes exact ties at the top.

The values in PERPLEXITY are today's, the worst of the instruction sets from AVX2 to AMX; a format may
become better. docs/models.md shows them.
"""

import math
import os

import pytest

from gencli import LLM
from tests.real.chats import STORY
from tests.real.models import GEMMA, SMOL, folder, gguf

SOURCES = {"smol": SMOL, "gemma": GEMMA}
FORMATS = {
    "float32": {"dtype": "float32"},
    "own bits": {},
    "int8": {"quantize": "int8"},
    "int4": {"quantize": "int4"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "transformers bfloat16": {"dtype": "bfloat16", "backend": "transformers"},
}
PERPLEXITY = {
    "smol": {
        "float32": 34.092, "own bits": 34.093, "int8": 34.188, "int4": 34.156,
        "bfloat16": 34.162, "float16": 34.085, "transformers bfloat16": 34.071,
    },
    "gemma": {"float32": 28.73, "own bits": 28.73, "int8": 28.678, "int4": 30.881},
}  # fmt: skip
if os.environ.get("FULL"):  # float16 overflows in its layers
    PERPLEXITY["gemma"] |= {"bfloat16": 28.747}
SLACK = 1.01  # kernels of 16 bits are chosen by their time, and differ in their bits


def read(name, form):
    """The log-probabilities of the text's tokens, each with the two most likely ones."""
    source = SOURCES[name]
    path = folder(source) if "quantize" in FORMATS[form] or "backend" in FORMATS[form] else gguf(source)
    (found,) = LLM(model=str(path), **FORMATS[form]).generate([STORY], max_tokens=1, prompt_logprobs=2)
    return [entry for entry in found.prompt_logprobs if entry is not None]


@pytest.mark.parametrize("name", SOURCES)
def test_a_format_loses_no_more_than_today_and_has_no_ties(name):
    for form, today in PERPLEXITY[name].items():
        entries = read(name, form)
        found = math.exp(-sum(entry.chosen.logprob for entry in entries) / len(entries))
        print(f"{name}, {form}: {found:.3f}, {len(entries)} tokens")
        ties = sum(entry.top[0].logprob == entry.top[1].logprob for entry in entries)
        assert ties == 0, (form, ties, len(entries))
        assert found <= SLACK * today, (form, found)
