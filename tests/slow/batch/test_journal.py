"""What is kept to resume: journal, fingerprint, trace."""

import json
import shutil
from itertools import product

import jsonschema
import pytest

from gencli.batch.journal import Journal
from gencli.cli.app import main
from gencli.errors import UsageError
from gencli.explain.trace_file import read_trace
from gencli.models.files.local_models import bundled_folder
from tests.batch.test_journal import (
    ALIKE_ROWS,
    CHAIN,
    HEADER,
    ROWS,
    facts,
    journal,
    outcome,
    resumed,
    tiny,
    traced,
)
from tests.cli.conftest import ROOT


def test_a_journal_that_is_cut_anywhere_has_all_rows_before_the_cut(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0), outcome(1), outcome(2)).close()
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == 10]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        made = Journal(path, HEADER)
        left = sum(end <= cut for end in ends[1:])
        assert [one.index for one in made.outcomes()] == list(range(left))
        for index in range(left, 3):
            made.append(outcome(index))
        made.close()
        assert path.read_bytes() == whole


def test_no_flipped_bit_is_taken_for_what_was_written(tmp_path):
    path = tmp_path / "j"
    journal(path, outcome(0, "some text"), outcome(1)).close()
    whole = path.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == 10]
    for place in range(len(whole)):
        if place == ends[-1]:  # a last line without its end is a torn one
            continue
        for bit in (0, 3, 6):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with pytest.raises(UsageError):
                Journal(path, HEADER)


def test_a_resumed_batch_with_other_weights_is_refused_by_name(bench):
    for flag in ["--model", "--contrast", "--draft"]:
        bench = bench.fresh()
        copy = bench.folder / "copy"
        shutil.copytree(bundled_folder("tiny-draft"), copy, copy_function=shutil.copyfile)
        bench.write([{"prompt": "Once"}, {"prompt": "Then"}])
        asked = (bench.input, "-o", bench.output, "--seed", "1", "--max-tokens", "2", "--keep-journal",
                 *(() if flag == "--model" else ("--model", "tiny")), flag, copy,
                 *(("--verify", "rejection") if flag == "--draft" else ()))  # fmt: skip
        assert bench.call(*asked).code == 0, flag
        weights = copy / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        again = bench.call(*asked, "--resume")
        prefix = "" if flag == "--model" else f"{flag} "
        assert (again.code, f"{prefix}weights_sha256 was" in again.err) == (2, True), flag


def test_a_file_of_a_run_may_not_change_though_the_mask_stays(bench):
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 5}
    file = bench.folder / "list.json"
    file.write_text(json.dumps(schema))
    bench.write([{"prompt": "one"}])
    run = (bench.input, "-o", bench.output, "--model", "fake", "--max-tokens", "3", "--json-schema", file)
    assert bench.call(*run).code == 7
    file.write_text(json.dumps({**schema, "contains": {"const": 7}}))
    found = bench.call(*run, "--resume", "--retry-errors")
    assert (found.code, found.out) == (2, "")
    assert "belongs to another run: file of --json-schema changed." in found.err


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


def test_a_batch_that_goes_on_has_each_row_once(traced, bench):
    traced("--keep-journal")
    file, journal = bench.folder / "trace.jsonl", bench.journal.read_bytes().splitlines(keepends=True)
    whole = file.read_bytes()
    sizes = [0] + [json.loads(line)["traced"] for line in journal[1:]]
    for rows, torn in product((0, 2, 5), (0, 40, len(whole))):  # a row was not begun, was torn, was whole
        bench.output.unlink(missing_ok=True)
        bench.journal.write_bytes(b"".join(journal[: rows + 1]))
        file.write_bytes(whole[: sizes[rows] + torn])
        assert traced("--resume", "--keep-journal")[0].code == 0, (rows, torn)
        assert sorted(file.read_bytes().splitlines()) == sorted(whole.splitlines()), (rows, torn)


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


def test_in_bfloat16_a_run_does_not_go_on_in_other_company_unless_allowed(bench):
    cases = [
        (("--max-batch", "4"), "--max-batch was 2 and is 4"),
        (("--max-batch", "2", "--draft", "ngram"), "--draft was 'none' and is 'ngram'"),
    ]
    for flags, said in cases:
        bench = bench.fresh()
        refused = resumed(bench, "bfloat16", *flags)
        assert refused.code == 2, flags
        assert f"{said}. In this number format that may change texts." in refused.err, flags
        assert "continue anyway with --allow-other-batch" in refused.err, flags
        allowed = bench.run("--resume", "--allow-other-batch", *tiny("bfloat16", *flags))
        assert (allowed.code, len(bench.results)) == (0, len(ALIKE_ROWS)), flags


def test_in_bfloat16_a_run_goes_on_in_the_same_company(bench):
    assert resumed(bench, "bfloat16", "--max-batch", "2").code == 0


def test_in_float32_a_run_goes_on_in_any_company(bench):
    for flags in [("--max-batch", "4"), ("--draft", "ngram")]:
        bench = bench.fresh()
        assert resumed(bench, "float32", *flags).code == 0, flags


def test_a_planned_batch_size_is_kept_where_texts_depend_on_it(bench):
    planned = ("--kv-memory", "4M", "--max-tokens", "100")
    done = resumed(bench, "bfloat16", "--kv-memory", "16M", "--max-tokens", "100", begun=planned)
    assert (done.code, "samples run side by side" in done.err) == (0, False)
