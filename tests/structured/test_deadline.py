"""All that comes before the compile shares one time limit with it."""

import itertools
import json
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pytest

from gencli.errors import ConfigError
from gencli.runtime.grammars import compile_plan
from gencli.structured.check.check import check_schema
from gencli.structured.choose import choose
from gencli.structured.deadline import Deadline
from gencli.structured.errors import OutOfTime
from processors.errors import GrammarError

OVER = Deadline(3.0, 0.0)
KIND = {"type": "string", "maxLength": 3}


def branch(index):
    kind = {"type": "string", "const": f"k{index}"}
    return {"type": "object", "properties": {"kind": kind}, "required": ["kind"]}


@dataclass(frozen=True)
class Counting(Deadline):
    """Counts how often the clock is looked at."""

    looks: itertools.count = field(default_factory=itertools.count)

    def check(self):
        next(self.looks)

    def part(self, share):
        return self


@dataclass(frozen=True)
class Short(Deadline):
    """No part of it is any time."""

    def part(self, share):
        return OVER


@dataclass
class Compiler:
    """Compiles nothing, and notes how long it was given."""

    given: list[float] = field(default_factory=list)

    def start(self, constraint, seconds):
        self.given.append(seconds)
        future = Future()
        future.set_exception(GrammarError("no"))
        return future


def test_what_takes_too_long_is_an_error_that_names_the_limit():
    for work in [check_schema, lambda schema, end: choose(schema, deadline=end)]:
        with pytest.raises(OutOfTime, match="time limit of 3 s") as caught:
            work(KIND, OVER)
        assert caught.value.exit_code == 3, work
        assert "`grammar_timeout`" in caught.value.hint, work


def test_a_rewriting_that_takes_too_long_leaves_the_schema_as_it_is_and_says_so():
    for backend in ["auto", "xgrammar"]:
        plan = choose(KIND, backend, deadline=Short.after(60.0))
        assert json.loads(plan.variants[0].constraint.text) == KIND, backend
        assert "rewriting it took too long" in plan.reason, backend
        assert "rewriting" not in choose(KIND, backend, deadline=Deadline.after(60.0)).reason, backend


def test_branches_that_are_too_many_to_exclude_each_other_are_not_compared():
    end = Counting.after(60.0)
    choose({"oneOf": [branch(index) for index in range(100)]}, deadline=end)
    assert next(end.looks) < 5000


def test_a_pattern_that_backtracks_over_a_name_is_given_up():
    for where in ["properties", "required"]:
        name = 40 * "a" + "b"
        schema = {
            "patternProperties": {"^(a+)+$": {}},
            where: {name: {}} if where == "properties" else [name],
        }
        check_schema(schema)
        assert len(choose(schema).variants) == 2, where


def test_each_back_end_has_the_time_that_is_left():
    plan = choose(KIND)
    compiler = Compiler()
    with pytest.raises(ConfigError):
        compile_plan(plan, compiler)
    assert compiler.given == [float("inf")] * 2
    timed = Compiler()
    with pytest.raises(ConfigError):
        compile_plan(replace(plan, seconds=8.0), timed)
    first, last = timed.given
    assert 7.0 < last <= first <= 8.0


def test_without_time_left_only_the_first_back_end_is_tried():
    plan = replace(choose(KIND), seconds=0.0)
    compiler = Compiler()
    with pytest.raises(ConfigError, match="xgrammar: no time was left for it"):
        compile_plan(plan, compiler)
    assert compiler.given == [0.0]
