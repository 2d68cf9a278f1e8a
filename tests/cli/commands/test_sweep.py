"""gencli sweep: each cell is the run with its settings."""

import csv
import io
import json

import pytest

SHARED = ("-m", "fake", "--seed", "4", "--max-tokens", "12")


AXES = ("--vary", "temperature=0.5:1.5:1", "--vary", "top_k=3,40")


def sweep(gencli, *words, code=0):
    found = gencli("sweep", *SHARED, *AXES, *words, "--format", "json")
    assert found.code == code, found.err
    return json.loads(found.out)


def test_first_tokens_come_from_one_forward_and_are_those_of_the_texts(gencli):
    first, whole = (
        sweep(gencli, *words, "the cat", "a dog") for words in (("--first",), ("--max-tokens", "1"))
    )
    for one, other in zip(first["cells"], whole["cells"], strict=True):
        assert [text["text"] for text in one["texts"]] == [text["text"] for text in other["texts"]]
        assert one["means"]["entropy"] == pytest.approx(other["means"]["entropy"], rel=1e-5)
    seeds = ("--vary", "seed=1:30:1", "--first", "--format", "csv", "the cat")
    lines = [*csv.DictReader(io.StringIO(gencli("sweep", *SHARED, *seeds).out))]
    assert len({line["text"] for line in lines}) > 1


def test_valid_texts_are_counted_and_a_stage_that_gives_way_is_said(gencli):
    found = gencli(
        "sweep", *SHARED, "--vary", "seed=1,2", "--choice", "yes", "--choice", "no", "--format", "json", "hi"
    )
    assert [cell["means"]["valid"] for cell in json.loads(found.out)["cells"]] == [1, 1]

    found = gencli("sweep", *SHARED, "--vary", "mirostat=1,2", "--top-k", "3", "hi")
    assert found.code == 0
    assert "--top-k is left out" in found.err


def test_what_a_sweep_cannot_do_is_refused(gencli):
    for words, said in [
        ((), "A sweep varies something"),
        (("--vary", "guidance=1,2", "--first"), "guidance has no effect"),
        (("--vary", "top_k=1", "--png", "x.png"), "--png draws one measure"),
        (("--vary", "top_k=1", "--finish-open", "--json"), "--finish-open"),
        (("--vary", "top_k=1", "--show", "beauty"), "not one of"),
        (("--vary", "top_k=1", "--color", "rank"), "There is no option --color"),
        (("--vary", "seed=1:1000:1", "-n", "1000"), "at most 100000"),
    ]:
        found = gencli("sweep", *SHARED, *words, "hi")
        assert (found.code, found.out) == (2, ""), words
        assert said in found.err, words
