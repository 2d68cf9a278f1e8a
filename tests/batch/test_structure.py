"""Rows may ask for structures, each its own; what is not valid is an error of its row."""

ROWS = [
    {"prompt": "Free"}, {"prompt": "Data", "json_schema": "age int"},
    {"prompt": "Pick", "choice": ["red", "blue"]}, {"prompt": "Match", "regex": "[0-9]{3}"},
    {"prompt": "Pick", "choice": ["up", "down"], "n": 2},
]  # fmt: skip


FLAGS = ("--model", "tiny", "--dtype", "float32", "--seed", "5", "--max-tokens", "40", "--no-timings")


def call(bench, *flags):
    return bench.call(bench.input, "-o", bench.output, *FLAGS, *flags)


def test_a_structure_that_is_wrong_is_an_error_of_its_row(bench):
    bench.write([{"prompt": "a", "regex": "["}, {"prompt": "a", "json": True, "choice": ["b"]}, ROWS[2]])
    assert call(bench).code == 7
    assert [bool(one["error"]) for one in bench.results] == [True, True, False]
