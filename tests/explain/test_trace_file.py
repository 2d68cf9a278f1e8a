"""A trace has a line for each token; what is read back is what was written, and no other file is a trace."""

import json

import jsonschema
import pytest

from gencli.errors import GenerationError
from gencli.explain.trace_file import TraceWriter, read_trace
from tests.cli.conftest import ROOT
from tests.engine.harness import TOKENIZER, engine, request

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "trace.schema.json").read_text()))


def head(name, sample):
    made = {"preset": "seed: 1\n", "code": {}, "files": {}}
    return {"model": "fake", "prompt": "abc", "chain": [], "draw": "gumbel", "seed": 1, **made}


@pytest.fixture
def lines():
    """The lines of two requests side by side, one with two samples."""
    written, on = [], engine()
    writer = TraceWriter(written.append, head, TOKENIZER)
    for one in (request("abc", key="a", n=2), request("bcd", key="b", chain="temperature=0.7 | top_k=5")):
        on.submit(type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"trace": 4}))
    for event in on.run():
        writer.add(event)
    return written


def test_every_line_is_as_the_schema_says(lines):
    assert len(lines) > 60
    for line in lines:
        SCHEMA.validate(json.loads(line))


def test_what_is_read_is_what_was_written(lines):
    texts = read_trace(lines)
    assert {text.key for text in texts} == {("a", 0), ("a", 1), ("b", 0)}
    assert all(text.reason for text in texts)
    for text in texts:
        assert [record["pos"] for record in text.records] == list(range(len(text.records)))
    by_key = {text.key: text for text in texts}
    assert [one["name"] for one in by_key["b", 0].records[0]["stages"]] == ["temperature", "top_k"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: ["{"], "Line 1 is no JSON"),
        (lambda lines: ["[]"], "Line 1 is no object"),
        (lambda lines: ['{"v": 2, "kind": "text"}'], "no line of a trace of version 1"),
        (lambda lines: lines[1:], "belongs to no text that has begun"),
        (lambda lines: [lines[0], lines[1].replace('"raw"', '"row"')], "no record of a token: 'raw'"),
        (lambda lines: [lines[0], lines[1].replace('"stages": [', '"stages": [3, ')], "no record of a token"),
        (lambda lines: ["[" * 100_000], "Line 1 is no JSON"),
    ],
)
def test_another_file_is_refused_with_the_line(lines, change, said):
    own = [line for line in lines if '"run": "b"' in line]
    with pytest.raises(GenerationError, match=said):
        read_trace(change(own))
