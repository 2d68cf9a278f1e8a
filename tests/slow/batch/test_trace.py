"""The trace of a batch: of each row what `gencli run` says of it, each row once, however often it was cut."""

import json

import jsonschema
import pytest

from gencli.cli.app import main
from gencli.explain.trace_file import read_trace
from tests.batch.test_trace import CHAIN, ROWS, facts, traced
from tests.cli.conftest import ROOT


def test_a_row_is_explained_as_its_prompt_alone_is(traced, bench, capfd):
    done, texts = traced("--max-batch", "4")
    assert done.code == 0, done.err
    flags = ("--model", "fake", "--allow-ids", "97,98,99,100,101,32", *CHAIN)
    for index, row in enumerate(ROWS):
        alone, name = bench.folder / "run.jsonl", row.get("id", str(index))
        words = ["--stage", "xtc:probability=1,threshold=0.05"] if "stages" in row else []
        for key, value in {"max_tokens": 12, **row}.items():
            if key not in ("prompt", "id", "stages"):
                words += ["-n" if key == "n" else f"--{key.replace('_', '-')}", str(value)]
        assert main(["run", *flags, *words, "--trace", str(alone), row["prompt"]]) == 0, capfd.readouterr()
        found = read_trace(alone.read_text().splitlines())
        assert all(text.records for text in found)
        assert [facts(texts[name, text.key[1]]) for text in found] == [facts(text) for text in found]


def test_the_text_is_that_without_a_trace_and_every_line_is_as_the_schema_says(traced, bench):
    schema = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "trace.schema.json").read_text()))
    rows = [*ROWS, {"messages": [{"role": "user", "content": "hi"}]}, {"prompt": ""}]
    bench.write(rows)
    bench.run(*CHAIN, "--no-timings")
    plain = bench.output.read_bytes()
    _, texts = traced("--no-timings", "--overwrite", rows=rows)
    assert bench.output.read_bytes() == plain
    for line in (bench.folder / "trace.jsonl").read_text().splitlines():
        schema.validate(json.loads(line))
    assert texts["6", 0].head["messages"] == [{"role": "user", "content": "hi"}]
    assert (texts["7", 0].reason, texts["7", 0].records) == ("error", ())


def lines(file):
    return sorted(file.read_text().splitlines())


def test_company_changes_no_line(traced, bench):
    many = [{"prompt": f"Row {n}", "n": 1 + n % 3, "max_tokens": 3 + n % 7} for n in range(12)]
    for number in (1, 3, 16):
        traced("--max-batch", number, "--overwrite", rows=many, name=f"{number}.jsonl")
    one, three, all_together = (lines(bench.folder / f"{number}.jsonl") for number in (1, 3, 16))
    assert one == three == all_together


def test_of_a_text_that_was_tried_again_only_the_tokens_that_count_are_explained(traced, bench):
    flags = ("--regex", "[ab]{4}|c[ab]{3}z", "--retries", "5", "--partial")  # no run here may choose a z
    _, texts = traced(*flags, rows=[{"prompt": f"Row {n}"} for n in range(8)])
    assert any(one["attempts"] > 1 for one in bench.results)
    for one in bench.results:
        records = texts[one["id"], 0].records
        assert len(records) == one["completion_tokens"] or one["error"]
        assert "".join(record["text"] for record in records) == one["text"]


@pytest.mark.parametrize("rows", [0, 2, 5])
def test_a_batch_that_goes_on_has_each_row_once(traced, bench, rows):
    traced("--keep-journal")
    file, journal = bench.folder / "trace.jsonl", bench.journal.read_bytes().splitlines(keepends=True)
    whole = file.read_bytes()
    size = ([0] + [json.loads(line)["traced"] for line in journal[1:]])[rows]
    for left in (whole[:size], whole[: size + 40], whole):  # a row was not begun, was torn, was whole
        bench.output.unlink(missing_ok=True)
        bench.journal.write_bytes(b"".join(journal[: rows + 1]))
        file.write_bytes(left)
        assert traced("--resume", "--keep-journal")[0].code == 0
        assert sorted(file.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_trace_that_has_lost_lines_goes_on_with_a_notice(traced, bench):
    traced("--keep-journal")
    file, journal = bench.folder / "trace.jsonl", bench.journal.read_bytes().splitlines(keepends=True)
    for left in (b"", file.read_bytes()[:3000]):
        bench.output.unlink()
        bench.journal.write_bytes(b"".join(journal[:4]))
        file.write_bytes(left)
        done, texts = traced("--resume", "--keep-journal")
        assert (done.code, "bytes of rows that have finished" in done.err) == (0, True)
        assert {key for key, text in texts.items() if text.reason}


def test_a_batch_that_is_complete_leaves_its_trace(traced, bench):
    traced()
    whole = (bench.folder / "trace.jsonl").read_bytes()
    assert "nothing to resume" in traced("--resume")[0].err
    assert (bench.folder / "trace.jsonl").read_bytes() == whole


def test_a_run_goes_on_with_the_trace_that_it_began_with(traced, bench):
    traced("--keep-journal")
    bench.output.unlink()
    said = bench.refused(*CHAIN, "--resume")
    assert "`trace`" in said or "--trace" in said


def test_rows_on_stdout_have_a_trace_too(bench):
    bench.write(ROWS)
    file = bench.folder / "trace.jsonl"
    done = bench.call(
        bench.input, "--model", "fake", "--max-tokens", "6", "--trace", file, "--trace-top", "2"
    )
    assert len(done.out.splitlines()) == len(ROWS)
    texts = read_trace(file.read_text().splitlines())
    assert {len(record["raw"]["top"]) for text in texts for record in text.records} == {2}


def test_a_row_that_is_tried_again_counts_with_its_last_lines(traced, bench):
    rows = [{"prompt": "abc", "regex": "[abc]{400}", "grammar_backend": "llguidance"}, {"prompt": "b"}]
    assert traced("--keep-journal", rows=rows)[0].code == 7
    before = read_trace((bench.folder / "trace.jsonl").read_text().splitlines())
    _, texts = traced("--resume", "--retry-errors", rows=rows)
    assert {text.key: facts(text) for text in before} == {key: facts(text) for key, text in texts.items()}
