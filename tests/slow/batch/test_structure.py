"""Rows may ask for structures, each its own; what is not valid is an error of its row."""

import csv
import io
import json

from tests.batch.test_structure import FLAGS, ROWS, call


def test_a_document_may_be_written_in_one_line_or_in_part(bench):
    cases = [
        ("csv", {"parsed": True}, '{"age":7}'), ("jsonl", {"parsed": True}, '{"age":7}'),
        ("openai", {"parsed": True}, '{"age":7}'), ("csv", {"select": "/age"}, "7"),
    ]  # fmt: skip
    schema = {"type": "object", "properties": {"age": {"const": 7}}, "required": ["age"]}
    for form, option, text in cases:
        bench.write([{"prompt": "Data", "json_schema": schema, "seed": seed, **option} for seed in (1, 2)])
        done = bench.call(bench.input, *FLAGS, "--format", form, "-q")
        assert done.code == 0, (form, option, text)
        if form == "csv":
            found = [row["text"] for row in csv.DictReader(io.StringIO(done.out))]
        else:
            lines = [json.loads(line) for line in done.out.splitlines()]
            is_openai = form == "openai"
            found = [
                line["response"]["body"]["choices"][0]["message"]["content"] if is_openai else line["text"]
                for line in lines
            ]
        assert found == [text, text], (form, option, text)


def test_what_is_not_valid_is_drawn_again_by_its_row(bench):
    row = {"prompt": "Once", "regex": "[a-z ]{2,200}", "max_tokens": 6}
    bench.write([{**row, "seed": n} for n in range(8)] + [{**row, "seed": n, "retries": 3} for n in range(8)])
    assert call(bench).code in (0, 7)
    once, again = bench.results[:8], bench.results[8:]
    assert {one["attempts"] for one in once} == {1}
    assert all(b["attempts"] > 1 for a, b in zip(once, again, strict=True) if a["error"])
    assert all(a["text"] == b["text"] for a, b in zip(once, again, strict=True) if not a["error"])


def test_a_resumed_run_gives_the_same_bytes(bench):
    bench.write(ROWS * 3)
    call(bench, "--keep-journal")
    whole = bench.output.read_bytes()
    lines = bench.journal.read_bytes().splitlines(keepends=True)
    for size in [1, 8]:
        bench.journal.write_bytes(b"".join(lines[:6]))
        bench.output.unlink()
        assert call(bench, "--resume", "--max-batch", size).code == 0, size
        assert bench.output.read_bytes() == whole, size


def test_each_row_has_its_own_structure(bench):
    bench.write([*ROWS, *ROWS])
    assert call(bench).code == 0
    free, data, pick, match, both = bench.results[:5]
    assert (free["valid"], free["grammar"]) == (None, None)
    assert isinstance(data["parsed"]["age"], int)
    assert pick["text"] in ("red", "blue")
    assert len(match["text"]) == 3
    assert match["text"].isdecimal()
    assert set(both["texts"]) <= {"up", "down"}
    assert data["grammar"]["backend"] in ("xgrammar", "llguidance")
    assert "compile_seconds" not in data["grammar"]


def test_a_document_that_is_cut_is_an_error_of_its_row(bench):
    bench.write([ROWS[0], {**ROWS[3], "regex": "[0-9]{30}", "max_tokens": 2}, ROWS[2]])
    assert call(bench).code == 7
    assert [one["error"] and one["error"]["type"] for one in bench.results] == [None, "InvalidOutput", None]
    assert bench.results[1]["text"] is None


SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["age"],
}


def test_a_schema_of_the_run_that_changed_in_its_file_is_noticed(bench):
    schema = bench.folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    bench.write([ROWS[0]] * 3)
    assert call(bench, "--json-schema", schema, "--keep-journal").code == 0
    bench.output.unlink()
    schema.write_text(json.dumps({**SCHEMA, "required": []}))
    done = call(bench, "--json-schema", schema, "--resume")
    assert (done.code, "chain changed" in done.err) == (2, True)
