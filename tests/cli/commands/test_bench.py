"""`gencli bench` prints one line for each thing that is measured."""

import json

import pytest

from gencli.cli.app import main


def test_bench_grammar_reports_the_parts_and_the_ratio(capsys):
    assert main(["bench", "grammar", "--back-end", "xgrammar", "--rows", "2", "--steps", "1"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "ratio"
    name, rows, *figures = line.split()
    assert (name, rows, len(figures)) == ("xgrammar", "2", 6)
    assert all(float(figure) > 0 for figure in figures)


def test_a_back_end_that_there_is_not_is_refused_by_name(capsys):
    assert main(["bench", "grammar", "--back-end", "nothing", "--steps", "1"]) != 0
    assert "nothing" in capsys.readouterr().err


SMALL = ["bench", "batch", "--requests", "2", "--max-batch", "2", "--threads", "1"]
WAYS = ["gencli", "generate", "generate, sorted", "generate_batch"]


def test_bench_batch_compares_the_ways_on_one_load(capsys):
    assert main([*SMALL, "--prefix", "40", "--format", "json"]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert [cost["way"] for cost in costs] == WAYS
    assert {(cost["prefix"], cost["requests"], cost["equal"]) for cost in costs} == {(40, 2, 2)}
    assert len({cost["output_tokens"] for cost in costs}) == 1


def test_bench_batch_prints_a_line_for_each_way(capsys):
    assert main([*SMALL, "--prefix", "0"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["prefix", "way"]
    assert [line[8:24].strip() for line in lines] == WAYS


def test_bench_step_has_a_line_for_each_number_of_rows_and_a_column_for_each_chain(capsys):
    small = ["bench", "step", "--steps", "1", "--rows", "1", "--rows", "2", "--vocab", "300"]
    assert main(small) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["rows", "greedy"]
    assert [line.split()[0] for line in lines] == ["1", "2"]
    assert main([*small, "--format", "json"]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert {cost["rows"] for cost in costs} == {1, 2}
    assert all(0 < cost["least"] <= cost["step"] for cost in costs)


SPECULATE = ["bench", "speculate", "--model", "fake", "--draft", "suffix", "--steps", "1"]


def test_bench_speculate_has_a_line_for_each_number_of_drafts_and_rows(capsys):
    assert main([*SPECULATE, "--draft-tokens", "0..2", "--rows", "1,2", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(g["rows"], g["drafts"]) for g in found["gains"]] == [(r, k) for r in (1, 2) for k in (0, 1, 2)]
    assert set(found["best"]) == {"1", "2"}


def test_bench_speculate_names_the_best_number_and_the_break_even(capsys):
    assert main([*SPECULATE, "--draft-tokens", "1,2", "--rows", "1"]) == 0
    head, *lines, best, even = capsys.readouterr().out.splitlines()
    assert (head.split()[0], [line.split()[:2] for line in lines]) == ("rows", [["1", "1"], ["1", "2"]])
    assert best.startswith("Best with 1 row(s): ")
    assert even.startswith("Break-even: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--draft-tokens", "many"], "'many' is no list of numbers"),
        (["--rows", "0"], "numbers from 1 to 65536"),
        (["--draft-tokens", "8..0"], "'8..0' runs backwards.\nHint: Write 0..8."),
        (["--draft", "none"], "nothing to measure"),
        (["--prompts", "nowhere.jsonl"], "cannot be read"),
    ],
)
def test_bench_speculate_refuses_what_it_cannot_measure(options, said, capsys):
    assert main([*SPECULATE, *options]) == 2
    assert said in capsys.readouterr().err


def test_bench_run_compares_whole_runs(capsys):
    small = ["--turns", "1", "--max-tokens", "3", "--threads", "1"]
    assert main(["bench", "run", *small, "--rows", "2", "--format", "json"]) == 0
    costs = json.loads(capsys.readouterr().out)
    assert [cost["way"] for cost in costs] == ["gencli", "transformers"]
    assert all(cost["start"] > 0 and cost["peak"] > 0 for cost in costs)


def test_bench_run_refuses_what_it_cannot_compare(capsys):
    assert main(["bench", "run", "--gguf", "any.gguf", "--rows", "2"]) == 2
    assert "--rows 1" in capsys.readouterr().err
