"""A benchmark prints one record for each thing that is measured, as a line of a table or as JSON."""

import json
from dataclasses import fields
from importlib import import_module

import batch
import grammar
import pytest
import sampler
import serve
import speculate
import stages
import step
import torch
from predictions import GpuCost
from report import run_benchmark

from gencli.cli.app import main
from gencli.cli.commands.bench import RunCost

KINDS = {
    "run": RunCost, "step": step.StepCost, "sampler": sampler.SamplerCost, "stages": stages.StageCost,
    "batch": batch.BatchCost, "grammar": grammar.GrammarCost, "speculate": speculate.DraftGain,
    "serve": serve.ServeCost, "gpu": GpuCost,
}  # fmt: skip


def bench(name, *arguments):
    """The exit code of `gencli bench run` or of a script of scripts/bench."""
    if name == "run":
        return main(["bench", "run", *arguments])
    module = import_module(name)
    return run_benchmark(getattr(module, name), module.MEASURES, KINDS[name], arguments)


def test_the_help_of_each_benchmark_explains_each_column(capsys):
    for name in KINDS:
        assert bench(name, "--help") == 0, name
        shown = capsys.readouterr().out
        for column in fields(KINDS[name]):
            about = [column.name, *column.metadata["about"].split()]
            assert any(line.split() == about for line in shown.splitlines()), (name, about)
            assert max(map(len, shown.splitlines())) <= 80, name


def report(arguments, capsys):
    """The parts of the JSON report of a benchmark."""
    assert bench(*arguments, "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["conditions", "records", "summary"]
    assert found["conditions"]["threads"] >= 1
    kind = KINDS[arguments[0]]
    assert all([*record] == [column.name for column in fields(kind)] for record in found["records"])
    return found


def test_bench_step_has_a_record_for_each_number_of_rows_and_chain(capsys):
    small = ["step", "--steps", "1", "--rows", "1", "--rows", "2", "--vocab", "300"]
    assert bench(*small) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["rows", "chain", "step_ms", "least_ms"]
    assert [line.split()[0] for line in lines] == ["1"] * 4 + ["2"] * 4
    costs = report(small, capsys)["records"]
    assert {cost["rows"] for cost in costs} == {1, 2}
    assert all(0 < cost["least_ms"] <= cost["step_ms"] for cost in costs)


def test_bench_gpu_predicts_without_a_gpu_and_writes_the_table_on_request(tmp_path, capsys):
    path = tmp_path / "table.md"
    asked = ["gpu", "--predict", "--card", "rtx 4090", "--shape", "1B", "--rows", "1"]
    assert bench(*asked, "--markdown", str(path), "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["conditions"]["card"] == "RTX 4090"
    steps = [record for record in found["records"] if record["part"] == "step"]
    assert {record["what"] for record in steps} == {"1B bf16", "1B int8", "1B int4"}
    assert all(record["predicted_rate"] > 0 for record in steps)
    assert {record["part"] for record in found["records"]} == {"layer", "product", "step"}
    assert {record["measured_us"] for record in found["records"]} == {None}
    text = path.read_text(encoding="utf-8")
    assert "card RTX 4090" in text
    assert "| step | 1B bf16 |" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_bench_gpu_says_that_there_is_no_gpu(capsys):
    assert bench("gpu") == 5
    assert "There is no GPU to measure" in capsys.readouterr().err


SPECULATE = ["speculate", "--model", "fake", "--draft", "suffix", "--steps", "1"]


def test_bench_speculate_names_the_best_number_and_the_break_even(capsys):
    found = report([*SPECULATE, "--draft-tokens", "0..2", "--rows", "1,2"], capsys)
    assert [(g["rows"], g["drafts"]) for g in found["records"]] == [(r, k) for r in (1, 2) for k in (0, 1, 2)]
    assert set(found["summary"]["best"]) == {"1", "2"}

    assert bench(*SPECULATE, "--draft-tokens", "1,2", "--rows", "1") == 0
    head, *lines, best, even = capsys.readouterr().out.splitlines()
    assert (head.split()[0], [line.split()[:2] for line in lines]) == ("rows", [["1", "1"], ["1", "2"]])
    assert best.startswith("Best with 1 row(s): ")
    assert even.startswith("Break-even: ")


SAMPLER = ["sampler", "--rows", "2", "--width", "500", "--repeats", "1"]


STAGES = [
    "stages", "--rows", "1", "--rows", "2", "--width", "600", "--history", "50", "--repeats", "1",
]  # fmt: skip
