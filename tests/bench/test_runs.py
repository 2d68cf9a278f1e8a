"""Whole runs in turns."""

import sys

import pytest

from gencli.cli.commands.bench import Run, Way, _ways, measure_runs
from gencli.errors import ModelError

RUN = Run(tokens=8, rows=2, threads=1)


def way(name: str, script: str) -> Way:
    return Way(name, (sys.executable, "-S", "-c", script), ("one", "two"))


def test_costs_are_over_those_of_the_first_way() -> None:
    first, second = measure_runs([way("a", "pass"), way("b", "import json")], RUN, turns=1)
    assert (first.way, first.start_ratio, first.whole_ratio) == ("a", 1.0, 1.0)
    assert second.whole_ratio == second.whole_s / first.whole_s
    assert min(first.peak_mib, second.peak_mib) > 1


def test_a_run_that_fails_is_named_with_its_last_line() -> None:
    with pytest.raises(ModelError, match="The run of a ended with exit code 3: no model"):
        list(
            measure_runs(
                [way("a", "import sys; print('no model', file=sys.stderr); sys.exit(3)")], RUN, turns=1
            )
        )


def test_flags_beside_take_the_place_of_transformers() -> None:
    plain, other = _ways("model", RUN, flags="--invariant off", beside=["--invariant on"])
    assert (plain.name, other.name) == ("gencli", "gencli --invariant on")
    shared = [word for word in plain.command(3) if word != "off"]
    assert shared == [word for word in other.command(3) if word != "on"]
    assert "on" in other.command(3)
