"""`gencli bench` prints one line for each back end and number of rows."""

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
