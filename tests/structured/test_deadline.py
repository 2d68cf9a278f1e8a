"""All that comes before the compile shares one time limit with it."""

import itertools
from dataclasses import dataclass, field

import pytest

from gencli.structured.backend_choice import choose
from gencli.structured.schema_check import check_schema
from gencli.structured.schema_errors import Deadline, OutOfTime

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


def test_what_takes_too_long_is_an_error_that_names_the_limit():
    for work in [check_schema, lambda schema, end: choose(schema, deadline=end)]:
        with pytest.raises(OutOfTime, match="time limit of 3 s") as caught:
            work(KIND, OVER)
        assert caught.value.exit_code == 3, work
        assert "`grammar_timeout`" in caught.value.hint, work


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
