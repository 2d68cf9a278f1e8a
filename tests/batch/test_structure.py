"""Rows may ask for structures, each its own; what is not valid is an error of its row."""

import json

SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["age"],
}


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


def test_a_schema_of_the_run_that_changed_in_its_file_is_noticed(bench):
    schema = bench.folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    bench.write([ROWS[0]] * 3)
    assert call(bench, "--json-schema", schema, "--keep-journal").code == 0
    bench.output.unlink()
    schema.write_text(json.dumps({**SCHEMA, "required": []}))
    done = call(bench, "--json-schema", schema, "--resume")
    assert (done.code, "chain changed" in done.err) == (2, True)
