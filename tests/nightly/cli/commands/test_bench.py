"""A benchmark prints one record for each thing that is measured, as a line of a table or as JSON."""

from dataclasses import fields

from grammar import GrammarCost

from gencli.cli.app import main
from processors.catalog import BUILTIN
from tests.cli.commands.test_bench import STAGES, bench, report


def test_bench_grammar_reports_the_parts_and_the_ratio(capsys):
    assert bench("grammar", "--back-end", "xgrammar", "--rows", "2", "--steps", "1") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [column.name for column in fields(GrammarCost)]
    name, rows, *figures = line.split()
    assert (name, rows, len(figures)) == ("xgrammar", "2", 6)
    assert all(float(figure) > 0 for figure in figures)


SMALL = ["batch", "--requests", "2", "--max-batch", "2", "--threads", "1"]


WAYS = ["gencli", "gencli, int8", "generate", "generate, sorted", "generate_batch"]


def test_bench_batch_compares_the_ways_on_one_load(capsys):
    costs = report([*SMALL, "--prefix", "40"], capsys)["records"]
    assert [cost["way"] for cost in costs] == WAYS
    exact = [cost for cost in costs if cost["way"] != "gencli, int8"]
    assert {(cost["prefix"], cost["requests"], cost["equal"]) for cost in exact} == {(40, 2, 2)}
    assert len({cost["output_tokens"] for cost in costs}) == 1

    assert bench(*SMALL, "--prefix", "0") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["prefix", "way"]
    assert [line[8:24].strip() for line in lines] == WAYS


def test_bench_stages_has_a_line_for_each_stage_and_number_of_rows(capsys):
    costs = report(STAGES, capsys)["records"]
    assert [cost["stage"] for cost in costs] == [spec.name for spec in BUILTIN] * 2
    assert all(cost["stage_ms"] > 0 and cost["passes"] > 0 for cost in costs)
    assert [cost["stage"] for cost in report([*STAGES, "top_k"], capsys)["records"]] == ["top_k"] * 2


def test_bench_run_compares_whole_runs(capsys):
    small = ["--turns", "1", "--max-tokens", "3", "--threads", "1"]
    costs = report(["run", *small, "--rows", "2"], capsys)["records"]
    assert [cost["way"] for cost in costs] == ["gencli", "transformers"]
    assert all(cost["start_s"] > 0 and cost["peak_mib"] > 0 for cost in costs)
