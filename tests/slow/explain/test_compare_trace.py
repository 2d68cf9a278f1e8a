"""A chain on the logits of a trace: the same as beside a model where it is exact; no other file is obeyed."""

import base64
import json

import numpy as np
import pytest

from gencli.errors import GencliError, GenerationError
from gencli.explain.chain_comparison import Other, compare_trace, known_texts
from gencli.explain.trace_file import read_trace
from processors.chain import Chain
from processors.errors import ProcessorsError


@pytest.fixture
def trace(gencli, tmp_path):
    """Write a trace with as many kept logits, and return its path."""

    def write(keep, *words):
        path = tmp_path / f"{keep}.jsonl"
        made = gencli(
            "run", "-m", "fake", "--seed", "3", "--max-tokens", "12", "--top-k", "20", "-q", *words,
            "the cat", "--trace", path, "--keep-logits", str(keep),
        )  # fmt: skip
        assert made.code == 0, made.err
        return path

    return write


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def compared(found, chain="temperature=0.8 | top_k=9"):
    (text,) = read_trace(json.dumps(line) for line in found)
    return compare_trace(text, Other(Chain.parse(chain)))


def test_it_is_what_the_model_would_have_given(gencli, trace):
    for keep in [60, 300]:
        path, b = trace(keep), "temperature=0.8 | top_k=9"
        words = ("-m", "fake", "--a", "top_k=20", "--b", b, "--seed", "3", "--max-tokens", "12", "the cat")
        live = gencli("compare", *words, "--format", "json").json
        kept = gencli("compare", "--trace", path, "--b", b, "--format", "json").json
        assert live["summary"]["parted"] > 0, keep
        for one, other in zip(live["texts"][0]["places"], kept["texts"][0]["places"], strict=True):
            ids = {key: [one[key][0], other[key][0]] for key in "ab"}
            assert all(first == second for first, second in ids.values()), keep
            for key in ("tv", "kl_ba"):
                assert one[key] == pytest.approx(other[key], abs=1e-4), keep
            for key in ("pos", "parted", "kl_ab", "decided_by_a", "decided_by_b"):
                assert one[key] == other[key], keep


def test_what_a_trace_does_not_know(trace):
    for limit in [-1, None, "x", 10**30]:
        head, *others = lines(trace(20))
        assert compared([head | {"max_tokens": limit}, *others]) == compared([head, *others]), limit

    (text,) = read_trace(json.dumps(line) for line in lines(trace(20)))
    with pytest.raises(ProcessorsError, match="no tokenizer"):
        compare_trace(text, Other(Chain.parse('grammar:text="[a-z]+",kind=regex')))

    (text,) = read_trace(json.dumps(line) for line in lines(trace(300)))
    assert known_texts(text).items() >= {record["id"]: record["text"] for record in text.records}.items()


def test_logits_that_cannot_be_are_refused(trace):
    for value in [float("nan"), float("inf")]:
        head, *records = lines(trace(20))
        records[0]["logits"]["values"] = base64.b64encode(np.full(20, value, "<f4").tobytes()).decode()
        with pytest.raises(GenerationError, match="a logit is no number"):
            compared([head, *records])

    for rest in [1e300, 800.0, 60.0]:
        head, *records = lines(trace(20))
        records[0]["logits"]["rest"] = rest
        with pytest.raises(GenerationError, match="rest is "):
            compared([head, *records])


HEADS = {
    "no chain": {"chain": None},
    "an unknown stage": {"chain": [{"nothing": {}}]},
    "stages of another kind": {"chain": [3]},
    "a wrong value": {"chain": [{"top_k": {"k": "x"}}]},
    "a grammar without texts": {"chain": [{"grammar": {"text": "a", "kind": "regex"}}]},
    "too many stages": {"chain": [{"top_k": {"k": 3}}] * 10_000},
    "an unknown draw": {"draw": "dice"},
    "a draw that is a list": {"draw": []},
    "no prompt": {"prompt_ids": None},
    "ids beyond the vocabulary": {"prompt_ids": [10**9]},
    "ids that are texts": {"eos_ids": ["a"]},
}


def test_a_wrong_head_or_record_is_refused(trace):
    for change in HEADS.values():
        head, *others = lines(trace(20))
        with pytest.raises(GenerationError):
            compared([head | change, *others])

    for change in RECORDS.values():
        head, first, second, *others = lines(trace(20))
        if "vocab" in change:
            change = {"logits": second["logits"] | change}
        with pytest.raises(GencliError):
            compared([head, first, second | change, *others])


RECORDS = {
    "an id beyond the vocabulary": {"id": 10**6},
    "a negative id": {"id": -1},
    "no logits": {"logits": None},
    "a stage that is not of the chain": {"decided_by": ["none"]},
    "stages of another kind": {"decided_by": [{"a": 1}]},
    "logits of another form": {"logits": {"ids": "?"}},
    "a vast vocabulary": {"vocab": 1 << 23},
    "another vocabulary": {"vocab": 259},
}
