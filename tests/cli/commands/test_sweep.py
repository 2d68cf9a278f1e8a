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


def test_the_texts_are_shown_and_a_file_has_the_format_of_its_suffix(gencli, tmp_path):
    made = sweep(gencli, "the cat")
    shown = gencli("sweep", *SHARED, *AXES, "the cat").out
    for place, cell in enumerate(made["cells"], 1):
        values = " ".join(f"{key}={value}" for key, value in cell["values"].items())
        assert f"\n==> {place}: {values} <==\n{cell['texts'][0]['text']}\n" in shown
    for suffix, read in (("json", json.loads), ("jsonl", lambda text: [*map(json.loads, text.splitlines())])):
        assert gencli("sweep", *SHARED, *AXES, "-o", tmp_path / f"x.{suffix}", "the cat").code == 0
        written = read((tmp_path / f"x.{suffix}").read_text())
        assert (written if suffix == "json" else {**made, "cells": written}) == made
    for suffix in ("json", "txt"):
        words = ("-m", "fake", "--seed", "4", "--max-tokens", "5", "-o", tmp_path / f"y.{suffix}", "the cat")
        assert gencli("run", *words).code == 0
    assert json.loads((tmp_path / "y.json").read_text())["text"] + "\n" == (tmp_path / "y.txt").read_text()
    document = ("-m", "fake", "--json-schema", "a bool", "--seed", "1", "-o", tmp_path / "z.json", "the cat")
    assert gencli("run", *document).code == 0
    assert json.loads((tmp_path / "z.json").read_text()).keys() == {"a"}


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
        ((), "A sweep needs an option to vary"),
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
