"""gencli sweep: each cell is the run with its settings."""

import json
import math

import pytest

from tests.cli.commands.test_sweep import AXES, SHARED, sweep


def test_the_text_of_a_cell_is_that_of_a_run(gencli):
    found = sweep(gencli, "-n", "2", "the cat", "a dog")
    assert [cell["values"] for cell in found["cells"]] == [
        {"temperature": heat, "top_k": count} for heat in ("0.5", "1.5") for count in ("3", "40")
    ]
    for cell in found["cells"]:
        flags = ("--temperature", cell["values"]["temperature"], "--top-k", cell["values"]["top_k"])
        run = gencli("run", *SHARED, *flags, "-n", "2", "--format", "json", "the cat", "a dog")
        texts = [text for row in json.loads(run.out) for text in row["texts"]]
        assert [one["text"] for one in cell["texts"]] == texts


def test_measures_are_those_of_the_trace(gencli, tmp_path):
    cell = sweep(gencli, "the cat")["cells"][3]
    trace = tmp_path / "t.jsonl"
    gencli("run", *SHARED, "--temperature", "1.5", "--top-k", "40", "--trace", trace, "the cat")
    records = [json.loads(line) for line in trace.read_text().splitlines()][1:-1]
    count, means = len(records), cell["means"]
    assert means["tokens"] == count
    assert means["entropy"] == pytest.approx(
        sum(one["final"]["entropy"] for one in records) / count, rel=1e-4
    )
    assert means["decided"] == sum(bool(one["decided_by"]) for one in records) / count
    surprise = sum(one["surprise"] for one in records)
    assert means["logprob"] == pytest.approx(-surprise * math.log(2), rel=1e-4)
    assert means["alive"] == 40
    assert means["valid"] is None


def test_a_grid_shows_one_measure_and_its_page_has_every_cell(gencli, tmp_path):
    lines = gencli("sweep", *SHARED, *AXES, "--show", "entropy", "the cat").out.splitlines()
    assert lines[1].split() == ["temperature", "top_k", "3", "top_k", "40"]
    assert [line.split()[0] for line in lines[2:]] == ["0.5", "1.5"]
    assert lines[3].endswith("███")
    table = gencli("sweep", *SHARED, *AXES, "the cat").out.splitlines()
    assert len(table) == 5 + 3 * 4  # and a blank line, a label and a text for each cell
    assert table[0].startswith("temperature  top_k  tokens  entropy")

    file = tmp_path / "grid.html"
    assert gencli("sweep", *SHARED, *AXES, "--html", file, "the cat").code == 0
    assert file.read_text().startswith("<!doctype html>")
