"""Lines of traces: written, read, checked and followed."""

import copy
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


def test_what_is_read_is_what_was_written_and_as_the_schema_says(lines):
    assert len(lines) > 60
    for line in lines:
        SCHEMA.validate(json.loads(line))

    texts = read_trace(lines)
    assert {text.key for text in texts} == {("a", 0), ("a", 1), ("b", 0)}
    assert all(text.reason for text in texts)
    for text in texts:
        assert [record["pos"] for record in text.records] == list(range(len(text.records)))
    by_key = {text.key: text for text in texts}
    assert [one["name"] for one in by_key["b", 0].records[0]["stages"]] == ["temperature", "top_k"]


FULL = 'ban=["e"] | bias={"5": 2.5} | temperature=2 | top_k=4 | xtc:probability=0.5,threshold=0.1'


@pytest.fixture(scope="module")
def full():
    """The lines of a text whose tokens have all fields, and the first such token."""
    written, on = [], engine()
    writer = TraceWriter(written.append, head, TOKENIZER)
    on.submit(request("abc", key="a", chain=FULL, trace=4))
    for event in on.run():
        writer.add(event)
    lines = [json.loads(line) for line in written]
    found = next(line for line in lines if line["kind"] == "token" and line["forgone"])
    assert found["mask"] == {"constrained_by": ["ban"], "n_masked": 1}
    return lines[0], found


def changed(record, path, value):
    """The record with another value in a place."""
    other = copy.deepcopy(record)
    place = other
    for key in path[:-1]:
        place = place[key]
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return other


ABSENT = "absent"  # a field that is left out
_TWO = [1, "x", 0.5]


def test_a_record_that_a_reader_could_not_use_is_refused(full):
    for path, value in [
        *[((key,), ABSENT) for key in ("pos", "id", "text", "raw", "final", "stages", "draw", "decided_by")],
        *[((key,), value) for key in ("pos", "id") for value in (-1, 1.5, True, "1", None, 10**400)],
        *[(("raw", key), value) for key in ("p", "others") for value in (None, -0.1, 1.1, "0.5", True)],
        *[(("final", "entropy"), value) for value in (None, -1, 10**400, [])],
        *[(("raw", "rank"), value) for value in (-1, 1.0, "1", [1])],
        *[(("raw", "top"), value) for value in (None, {}, [3], [[1, "x"]], [[1, 2, 0.5]], [["1", "x", 0.5]])],
        (("raw", "top"), [[1, "x", 2]]),
        (("raw", "alive"), None),
        *[(("surprise",), value) for value in (-1, "1", 10**400)],
        *[(("stages",), value) for value in (None, {}, [None], [[]], ["x"])],
        *[
            (("stages", 0, key), value)
            for key in ("name", "params", "note", "why_not")
            for value in (None, 3)
        ],
        *[(("stages", 0, "acted"), value) for value in (None, 1)],
        *[(("stages", 0, "alive"), value) for value in (None, [], [1], [1, 2, 3], [1, "2"], [1, -2])],
        *[(("stages", 0, "mass_kept"), value) for value in (None, "1", 2)],
        *[
            (("stages", 0, "removed"), value)
            for value in (None, [[1, "x", None]], [[1, 2]], "abc", [_TWO * 2])
        ],
        *[
            (("stages", 1, "changed"), value)
            for value in (None, [_TWO], [[1, "x", None, 1]], [[1, "x", 1, "1"]])
        ],
        (("stages", 1, "changed"), [[1, "x", 1, 10**400]]),
        *[(("draw", "kind"), value) for value in (None, "dice", ["gumbel"])],
        *[(("draw", "margin"), value) for value in ("1", 10**400, [])],
        *[(("draw", "runner_up"), value) for value in ([], [1], ["1", "x"], [1, 2], "ab", {})],
        *[(("draw", key), "yes") for key in ("greedy", "forced")],
        *[(("decided_by",), value) for value in (None, "top_k", [3], [["top_k"]], ["top_p"])],
        *[(("instead",), value) for value in (None, 3, [], [[1, "x"]] * 9, [[1]], [["1", "x"]], [[1, 2]])],
        *[(("forgone",), value) for value in ({}, [], "x", 3)],
        *[(("forgone", "removed_by"), value) for value in (None, "top_p", ["top_k"])],
        *[(("forgone", key), value) for key in ("id", "p") for value in (None, "1", -1)],
        *[(("mask",), value) for value in (None, [], {"constrained_by": ["ban"]})],
        *[(("mask", "constrained_by"), value) for value in (None, ["top_p"], [[]])],
    ]:
        lines = [json.dumps(line) for line in (full[0], changed(full[1], path, value))]
        with pytest.raises(GenerationError, match="Line 2 is no record of a token"):
            read_trace(lines)

    for run in [None, 3, [], {}]:
        with pytest.raises(GenerationError, match="Line 1 has no request"):
            read_trace([json.dumps({**full[0], "run": run})])


def test_another_file_is_refused_with_the_line(lines):
    for change, said in [
        (lambda lines: ["{"], "Line 1 is no JSON"),
        (lambda lines: ["[]"], "Line 1 is no object"),
        (lambda lines: ['{"v": 2, "kind": "text"}'], "no line of a trace of version 1"),
        (lambda lines: lines[1:], "belongs to no text that has begun"),
        (lambda lines: [lines[0], lines[1].replace('"raw"', '"row"')], "no record of a token: 'raw'"),
        (lambda lines: [lines[0], lines[1].replace('"stages": [', '"stages": [3, ')], "no record of a token"),
        (lambda lines: ["[" * 100_000], "Line 1 is no JSON"),
    ]:
        own = [line for line in lines if '"run": "b"' in line]
        with pytest.raises(GenerationError, match=said):
            read_trace(change(own))
