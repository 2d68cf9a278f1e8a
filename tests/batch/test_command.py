"""`gencli batch`: options, exit codes, messages, results, summary."""

import csv
import json
import os
from pathlib import Path

import pytest
import torch

from gencli.helpers import size
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import read_card
from gencli.models.model_memory import weight_bytes
from tests.batch.conftest import FAKE

ROWS = [{"prompt": f"Row {n}", **({"max_tokens": 3} if n % 3 else {})} for n in range(12)]
BAD = ["{", {"prompt": "x" * 2000}, {"prompt": "a", "top_q": 1}]


def test_a_row_has_the_fields_of_a_run_led_by_its_index(bench):
    bench.write(ROWS)
    assert bench.run().code == 0
    first = bench.results[0]
    assert list(first)[:4] == ["index", "id", "prompt", "text"]
    assert [one["index"] for one in bench.results] == list(range(12))
    assert bench.files == ["out.jsonl"]


def test_a_row_s_text_is_that_of_its_prompt_alone_with_its_seed(bench, capfd):
    from gencli.cli.app import main

    bench.write([{"prompt": f"Row {n}", "seed": n} for n in range(6)])
    bench.run()
    for number, result in enumerate(bench.results):
        main(["run", *FAKE[:4], "--max-tokens", "12", "--seed", str(number), "-q", f"Row {number}"])
        assert capfd.readouterr().out == result["text"] + "\n"


def test_faulty_rows_have_records_and_the_rest_goes_on(bench):
    bench.write([*ROWS[:5], *BAD, *ROWS[5:], BAD[2]])
    done = bench.run("--summary", bench.folder / "sum.json")
    assert done.code == 7
    assert [one["error"] and one["error"]["type"] for one in bench.results[4:9]] == [
        None, "InputError", "UsageError", "UsageError", None,
    ]  # fmt: skip
    assert [one["prompt"] for one in bench.results[5:8]] == [None, *(row.get("prompt") for row in BAD[1:3])]
    summary = json.loads((bench.folder / "sum.json").read_text())
    assert (summary["rows"], summary["succeeded"], summary["failed"]) == (16, 12, 4)
    assert summary["errors"] == {"InputError": 1, "UsageError": 3}
    assert "12 succeeded, 4 failed" in done.err
    assert "2 UsageError, first in row 7: There is no option 'top_q'." in done.err
    assert "1 InputError, first in row 5: This is not JSON" in done.err
    first = summary["error_messages"][0]
    assert (first["type"], first["count"], first["first_row"]) == ("UsageError", 2, 7)
    assert bench.journal.exists()  # for --retry-errors


TABLE = "name,age\nAnn,1\nBob,2\n"


def test_columns_that_let_no_row_run_are_refused_before_the_model_is_loaded(bench):
    cases = [
        (TABLE, ["--prompt-column", "nam"], "in.csv:2: The row has no column 'nam'. It has: name, age."),
        (TABLE, ["--template", "{{ nme }}"], "the row has no column 'nme'. Did you mean 'name'?\n"),
        (TABLE, ["--prompt-column", "name", "--id-column", "key"], "The row has no column 'key'."),
        (TABLE, [], "The row has neither prompt nor messages. It has: name, age."),
        ("prompt,title\na,b\n", [], "There is no option 'title'."),
    ]
    table = bench.folder / "in.csv"
    for text, flags, said in cases:
        table.write_text(text)
        done = bench.call(table, "-o", bench.output, "--model", "no/such/model", *flags)
        assert done.code == 2, said
        assert f"No row of the input can run. {table.parent}" in done.err, said
        assert said in done.err, said


def test_a_column_that_only_some_rows_lack_fails_those_rows(bench):
    bench.write([{"text": "a"}] * 30 + [{"name": "b"}, "{"])
    assert bench.run("--prompt-column", "name").code == 7
    assert [one["error"] is None for one in bench.results].index(True) == 30


def test_what_may_be_missing_from_a_template_is_no_wrong_name(bench):
    bench.write([{"name": "Ann"}])
    assert bench.run("--template", "{{ title | default('Dr') }} {{ name }}").code == 0
    assert bench.results[0]["prompt"] == "Dr Ann"


def test_a_column_id_names_the_results_and_keys_their_draws(bench):
    rows = [{"id": name, "prompt": "a"} for name in ("x", "y")]
    bench.write(rows)
    assert bench.run().code == 0
    texts = {one["id"]: one["text"] for one in bench.results}
    assert list(texts) == ["x", "y"]
    bench.write(rows[::-1])
    bench.run("--overwrite")
    assert {one["id"]: one["text"] for one in bench.results} == texts
    assert "The id 'x' occurs twice, at" in bench.refused("--overwrite", rows=[*rows, rows[0]])


def test_the_prompt_of_two_samples_counts_once(bench):
    bench.write([{"prompt": "Hello there", "n": 3}, {"prompt": "Hello you", "best_of": 2}])
    bench.run("--summary", bench.folder / "sum.json")
    told = json.loads((bench.folder / "sum.json").read_text())
    assert told["prompt_tokens"] == sum(one["prompt_tokens"] for one in bench.results)
    assert told["prompt_tokens"] == told["prompt_tokens_read"] + told["prompt_tokens_copied"]


def test_only_failed_rows_are_retried(bench):
    bench.write([*ROWS, *BAD])
    bench.run("--no-timings")
    before = bench.output.read_bytes()
    bench.output.unlink()
    done = bench.run("--no-timings", "--resume", "--retry-errors")
    assert done.code == 7
    assert bench.output.read_bytes() == before
    assert "15 of 15 rows, 12 from before" in done.err
    assert len(bench.journal.read_bytes().splitlines()) == 1 + 15 + 3


def cut(bench, lines, *options):
    """The state of a run that was killed when the journal had so many rows and a half."""
    bench.run("--no-timings", "--keep-journal", *options)
    whole = bench.output.read_bytes()
    kept = bench.journal.read_bytes().splitlines(keepends=True)
    bench.journal.write_bytes(b"".join(kept[: lines + 1]) + kept[lines + 1][:20])
    bench.output.unlink()
    return whole


def test_a_resumed_run_gives_the_bytes_of_an_uninterrupted_one(bench):
    for flags in [(), ("--stage", 'temperature:temperature=0,when={"after":"e"}')]:
        bench = bench.fresh()
        bench.write(ROWS)
        whole = cut(bench, 4, *flags)
        done = bench.run("--no-timings", "--resume", *flags)
        assert done.code == 0, flags
        assert "12 of 12 rows, 4 from before" in done.err, flags
        assert bench.output.read_bytes() == whole, flags
        assert bench.files == ["out.jsonl"], flags


def test_what_is_there_is_not_written_over_unless_asked(bench):
    bench.write(ROWS)
    cut(bench, 4)
    assert "--resume continues it, --overwrite starts a new run" in bench.refused()
    assert bench.run("--overwrite").code == 0
    assert "exists already" in bench.refused()
    assert bench.run("--overwrite").code == 0
    done = bench.run("--resume")
    assert (done.code, "there is nothing to resume" in done.err) == (0, True)


def test_an_old_output_is_not_taken_for_that_of_a_run_that_was_to_replace_it(bench):
    bench.write(ROWS)
    bench.run("--no-timings")
    old = bench.output.read_bytes()
    other = ("--seed", "6", "--no-timings")
    assert bench.run("--overwrite", *other, "--model", "no/such/model").code == 5  # as if it was killed
    bench.refused("--resume", *other)  # the journal is of another model
    assert bench.run("--overwrite", *other).code == 0
    assert bench.output.read_bytes() != old


def test_resume_begins_where_nothing_is_there(bench):
    bench.write(ROWS)
    bench.journal.write_bytes(b'{"gencli_jou')  # killed in its first write
    assert bench.run("--resume").code == 0


def test_too_many_errors_stop_the_run(bench):
    rows = [{"prompt": "x" * 2000} if n in (3, 6, 9) else {"prompt": f"Row {n}"} for n in range(60)]
    bench.write(rows)
    done = bench.run("--max-errors", "1", "--max-batch", "1", "--summary", bench.folder / "sum.json")
    assert done.code == 7
    assert not bench.output.exists()
    assert json.loads((bench.folder / "sum.json").read_text())["status"] == "stopped"
    assert "are safe in" in done.err
    assert bench.run("--resume", "--max-errors", "3").code == 7
    assert len(bench.results) == 60


def test_faults_of_the_input_are_found_before_the_model_is_loaded(bench):
    said = bench.refused("--fail-fast", "--model", "no/such/model", rows=[*ROWS, *BAD])
    assert "in.jsonl:13: This is not JSON" in said


def test_a_model_that_is_not_there_leaves_no_journal_to_go_on_with(bench):
    bench.write(ROWS[:2])
    done = bench.run("-m", "nosuch/model")
    assert done.code == 5
    assert "nosuch/model is neither a folder nor a model on this machine" in done.err
    assert "safe" not in done.err
    assert bench.files == []
    assert bench.run().code == 0


def test_stdout_has_results_in_order_and_nothing_else(bench):
    bench.write(ROWS)
    done = bench.call(bench.input, *FAKE)
    assert [json.loads(line)["index"] for line in done.out.splitlines()] == list(range(12))
    assert bench.files == []


def test_stdin_is_an_input(bench):
    done = bench.call(*FAKE, "-q", stdin=b'{"prompt": "a"}\n{"prompt": "b"}\n')
    assert [json.loads(line)["prompt"] for line in done.out.splitlines()] == ["a", "b"]
    assert done.err == ""


def test_the_order_of_completion_has_the_same_rows(bench):
    bench.write([{"prompt": "a", "max_tokens": 12 - n} for n in range(12)])
    bench.run("--order", "completion", "--max-batch", "12")
    indexes = [one["index"] for one in bench.results]
    assert sorted(indexes) == list(range(12))
    assert indexes != sorted(indexes)


def test_columns_are_kept(bench):
    bench.write([{"city": "Quito", "n": 3}])
    bench.run("--template", "In {{ city }}", "--keep-input")
    assert (bench.results[0]["prompt"], bench.results[0]["input"]) == ("In Quito", {"city": "Quito", "n": 3})


def test_messages_are_rendered_and_kept(bench):
    messages = [{"role": "user", "content": "Hi"}]
    bench.write([{"messages": messages}, {"prompt": "user: Hi\nassistant:", "seed": 5}])
    bench.run("--no-timings")
    assert bench.results[0]["messages"] == messages
    assert bench.results[0]["prompt_tokens"] == bench.results[1]["prompt_tokens"]


def test_a_dry_run_shows_prompts_and_all_faults_and_writes_nothing(bench):
    bench.write([*ROWS, *BAD])
    done = bench.run("--dry-run")
    assert done.code == 7
    assert done.out.count("fault: ") == 3
    assert "==> 0 (" in done.out
    assert "Row 2\n" in done.out
    assert "Row 3\n" not in done.out
    assert "15, 3 of them faulty" in done.out
    assert bench.files == []


def in_memory(name):
    """The size of a model's weights, which depends on whether this machine packs them."""
    return size(weight_bytes(read_card(bundled_folder(name)), torch.float32, torch.device("cpu")))


def test_a_dry_run_of_a_model_says_what_it_takes(bench):
    bench.write(ROWS)
    done = bench.call(bench.input, "--dry-run", "--model", "tiny")
    assert done.code == 0
    assert f"{in_memory('tiny')} weights + 45.0 MiB keys and values" in done.out
    assert "time     roughly" in done.out


def test_what_makes_no_sense_is_refused(bench):
    bench.write(ROWS)
    own = "is also the input or the output"
    cases = [
        (["--resume", "--overwrite"], "--resume and --overwrite contradict"),
        (["--retry-errors"], "Add --resume"),
        (["--fail-fast", "--max-errors", "3"], "--fail-fast and --max-errors"),
        (["--kv-memory", "1G", "--max-batch", "4"], "--kv-memory and --max-batch"),
        (["--kv-memory", "much"], "--kv-memory: 'much' is not a size"),
        (["--kv-memory", "1G"], "the fake model has no keys and values"),
        (["--max-batch", "0"], "--max-batch: '0' is neither auto nor a whole number"),
        (["--drain", "-1"], "--drain is -1"),
        (["--shard", "4/4"], "--shard is '4/4'"),
        (["-o", "-", "--resume"], "--resume needs an output file"),
        (["-o", bench.input], "is also the input"),
        *((["--summary", path], own) for path in (bench.input, bench.output, bench.journal)),
        (["--dry-run", "--model", "tiny", "--draft", "nowhere/small"],
         "--draft nowhere/small: nowhere/small is not on this machine"),
    ]  # fmt: skip
    if Path("/proc/self").exists():  # a folder that takes no file
        cases.append((["-o", "/proc/out.jsonl"], "cannot be written"))
    for flags, said in cases:
        assert said in bench.refused(*flags), flags
        assert bench.files == [], flags


def test_a_folder_of_texts_goes_on_and_is_replaced_when_the_new_one_is_complete(bench):
    bench.write([*ROWS[:3], BAD[0]])
    folder = bench.folder / "out"
    to_folder = [bench.input, "-o", f"{folder}/", *FAKE]
    assert bench.call(*to_folder).code == 7
    assert "--resume continues" in bench.call(*to_folder).err
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert bench.call(*to_folder, "--resume", "--retry-errors").code == 7
    assert {path.name: path.read_text() for path in folder.iterdir()} == made
    assert bench.call(*to_folder, "--overwrite", "--seed", "6").code == 7
    assert {path.name: path.read_text() for path in folder.iterdir()} != made
    assert bench.files == ["out", "out.journal"]
    (folder / "mine.txt").write_text("mine")
    refused = bench.call(*to_folder, "--overwrite")
    assert (refused.code, "is not a folder with results only" in refused.err) == (2, True)


def test_a_variable_may_leave_the_number_to_the_memory(bench, monkeypatch):
    monkeypatch.setenv("GENCLI_MAX_BATCH", "auto")
    bench.write(ROWS[:2])
    for flags, said in [([], True), (["--max-batch", "3"], False)]:
        done = bench.run(*flags, "--overwrite")
        assert (done.code, "Notice: 64 samples run side by side" in done.err) == (0, said), flags


def test_results_and_tables_have_token_ids_on_request(bench):
    rows = [{"prompt": "Row"}, {"prompt": "Others", "n": 2, "temperature": 1.5}, {"prompt": "x", "top_q": 1}]
    bench.write(rows)
    bench.run("--token-ids")
    one, two, failed = bench.results
    assert (one["prompt_token_ids"], bytes(one["token_ids"]).decode()) == ([*b"Row"], one["text"])
    assert [bytes(ids).decode() for ids in two["token_ids"]] == two["texts"]
    assert (failed["prompt_token_ids"], failed["token_ids"]) == (None, [])
    table = bench.folder / "out.csv"
    bench.call(bench.input, "-o", table, *FAKE, "--token-ids")
    cells = list(csv.DictReader(table.read_text().splitlines()))
    assert [bytes(json.loads(cell["token_ids"])).decode() for cell in cells[:3]] == [
        one["text"], *two["texts"],
    ]  # fmt: skip
    assert json.loads(cells[1]["prompt_token_ids"]) == [*b"Others"]
    plain = bench.folder / "plain.csv"
    bench.call(bench.input, "-o", plain, *FAKE)
    assert "token_ids" not in plain.read_text()


def test_token_ids_are_refused_where_results_have_no_place_for_them(bench):
    for flags in (("--format", "openai"), ("--format", "texts", "-o", bench.folder / "texts")):
        assert f"results, but those of {flags[1]} have none" in bench.refused(
            "--token-ids", *flags, rows=ROWS
        )


def test_results_with_and_without_token_ids_are_not_mixed(bench):
    bench.write([*ROWS, BAD[0]])
    assert bench.run().code == 7
    assert "token_ids" in bench.refused("--resume", "--retry-errors", "--token-ids").replace("-", "_")


TOOLS = [{"name": "beep", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]


@pytest.fixture
def tools(bench):
    path = bench.folder / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return "--tools", path, "--tool-choice", "required"


def test_tools_of_which_no_row_tells_the_model_are_refused_before_it_is_loaded(bench, tools):
    bench.write([{"prompt": "hi"}, {"prompt": "yo"}, "{"])
    refused = bench.call(bench.input, "--model", "no/such/model", *tools)
    assert (refused.code, refused.out) == (2, "")
    assert "--tools reaches the model in the chat template, which no row uses" in refused.err
    assert "--chat" in refused.err


STRUCTURED_ROWS = [
    {"prompt": "Free"}, {"prompt": "Data", "json_schema": "age int"},
    {"prompt": "Pick", "choice": ["red", "blue"]}, {"prompt": "Match", "regex": "[0-9]{3}"},
    {"prompt": "Pick", "choice": ["up", "down"], "n": 2},
]  # fmt: skip

FLAGS = ("--model", "tiny", "--dtype", "float32", "--seed", "5", "--max-tokens", "40", "--no-timings")


def call(bench, *flags):
    return bench.call(bench.input, "-o", bench.output, *FLAGS, *flags)


def test_a_structure_that_is_wrong_is_an_error_of_its_row(bench):
    bench.write(
        [{"prompt": "a", "regex": "["}, {"prompt": "a", "json": True, "choice": ["b"]}, STRUCTURED_ROWS[2]]
    )
    assert call(bench).code == 7
    assert [bool(one["error"]) for one in bench.results] == [True, True, False]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_takes_no_file_is_refused(bench):
    bench.write([{"prompt": "a"}])
    bench.folder.chmod(0o500)
    done = bench.run()
    bench.folder.chmod(0o700)
    assert (done.code, "cannot be written to" in done.err) == (2, True)


def test_a_journal_that_is_a_folder_is_refused(bench):
    bench.journal.mkdir()
    for flag in ("--overwrite", "--resume"):
        assert "out.jsonl.journal cannot be" in bench.refused(flag, rows=[{"prompt": "a"}]), flag


REPEATING_ROWS = [{"prompt": f"abcabc {n % 3} abcabc"} for n in range(12)]
DRAFTS = ("--draft", "suffix", "--draft-tokens", "3")


def texts(bench):
    return [one["text"] for one in bench.results]


def plain_texts(bench):
    assert bench.run().code == 0
    found = texts(bench)
    bench.output.unlink()
    return found


def test_a_batch_with_drafts_is_the_batch_without(bench):
    bench.write(REPEATING_ROWS)
    expected = plain_texts(bench)
    done = bench.run(*DRAFTS, "--summary", bench.folder / "sum.json")
    assert done.code == 0
    assert texts(bench) == expected
    assert "tokens a forward" in done.err
    assert json.loads((bench.folder / "sum.json").read_text())["drafts"]["accepted"] > 0
    assert sum(sum(one["speculation"]["accepted"]) for one in bench.results) > 0


def test_rows_choose_for_themselves(bench):
    bench.write(REPEATING_ROWS)
    expected = plain_texts(bench)
    own = [{"draft": "none"}, {"draft": "ngram", "draft_tokens": 2}, {"draft_tokens": "auto"}, {}]
    bench.write([{**row, **own[i % 4]} for i, row in enumerate(REPEATING_ROWS)])
    assert bench.run(*DRAFTS).code == 0
    assert texts(bench) == expected
    drafters = [one["speculation"] and one["speculation"]["drafter"] for one in bench.results]
    assert drafters[:4] == [None, "ngram", "suffix", "suffix"]


def test_a_row_cannot_bring_a_model(bench):
    bench.write([{"prompt": "a", "draft": "tiny"}, {"prompt": "a"}])
    assert bench.run().code == 7
    assert "The drafter 'tiny' is not among those of this run" in bench.results[0]["error"]["message"]


def test_rows_are_verified_as_they_say(bench):
    bench.write(REPEATING_ROWS)
    expected = plain_texts(bench)
    lossy = {"verify": "lossy-threshold", "verify_threshold": 0.01}
    own = [{}, {"verify": "match"}, {"verify": "rejection"}, lossy]
    bench.write([{**row, **own[i % 4]} for i, row in enumerate(REPEATING_ROWS)])
    assert bench.run(*DRAFTS).code == 0
    same = [one == other for one, other in zip(texts(bench), expected, strict=True)]
    assert all(same[0::4] + same[1::4])
    assert not all(same[2::4])
    assert not all(same[3::4])


def test_drafts_may_change_when_a_run_goes_on(bench):
    bench.write(REPEATING_ROWS)
    whole = cut(bench, 5)
    assert bench.run("--resume", "--no-timings", *DRAFTS).code == 0
    assert bench.output.read_bytes() == whole
