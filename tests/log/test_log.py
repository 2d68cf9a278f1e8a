"""The log of runs, and runs that are repeated from it."""

import json
import os
import shutil
import sqlite3
import stat

import yaml

from gencli.run_log import SCHEMA
from tests.helpers.pairs import PLUGIN


def test_nothing_is_kept_unless_it_is_asked_for(logged, gencli, database, here):
    gencli("run", "-m", "fake", "--max-tokens", "2", "hi")
    assert not database.exists()
    result = gencli("log", "list")
    assert (result.code, result.out) == (0, "")
    assert "The log is empty" in result.err

    here("home/gencli/defaults.yaml", "log: true\n")
    gencli("run", "-m", "fake", "--max-tokens", "2", "--no-log", "hi")
    assert not database.exists()
    gencli("run", "-m", "fake", "--max-tokens", "2", "hi")
    assert database.exists()


def test_show_has_all_of_a_run(logged, gencli):
    text = logged("hi", "yo", "--top-k", "5", "--format", "jsonl").lines
    found = gencli("log", "show", "1", "--format", "json").json
    assert [one["texts"][0] for one in found["prompts"]] == [one["text"] for one in text]
    assert [one["prompt"] for one in found["prompts"]] == ["hi", "yo"]
    assert found["settings"]["top_k"] == {"value": 5, "origin": "flag --top-k"}
    assert found["models"] == {"model": {"name": "fake", "revision": None, "sha256": None}}
    assert found["prompts"][0]["finish_reason"] == "length"
    assert found["prompts"][0]["timings"]["decode"] > 0
    assert found["seed"] == text[0]["seed"]
    assert yaml.safe_load(gencli("log", "show", "last", "--format", "yaml").out) == found
    assert f"seed     {found['seed']}" in gencli("log", "show", "1").out

    first = logged("hi", "--seed", "1")
    other = gencli("run", "-m", "fake", "--allow-ids", "97,98,99,100,101,32,10", "--max-tokens", "12",
                   "hi", "--seed", "1")  # fmt: skip
    assert (first.code, first.out) == (other.code, other.out)


def test_the_weights_of_a_model_are_named_by_their_hash(logged, gencli):
    logged("hi", "-m", "tiny", "--max-tokens", "1", "--allow-ids", "300")
    (model,) = gencli("log", "show", "1", "--format", "json").json["models"].values()
    assert len(model["sha256"]) == 64


def test_list_and_search_give_the_last_runs_first(logged, gencli):
    for prompt in ("one", "\xdcBER two", "three"):
        logged(prompt)
    rows = gencli("log", "list", "--format", "json").json
    assert [row["number"] for row in rows] == [3, 2, 1]
    limited = gencli("log", "list", "--limit", "2")
    assert len(limited.out.splitlines()) == 2
    assert "There are more runs than 2" in limited.err
    (row,) = gencli("log", "search", "\xfcber", "--format", "json").json
    assert row["prompt"] == "\xdcBER two"
    assert "No run contains that text." in gencli("log", "search", "%").err


def test_clear_removes_runs_from_the_file_and_numbers_are_not_used_again(logged, gencli, database):
    logged("secret one")
    logged("two")
    assert gencli("log", "clear").code == 2  # it asks, and there is no terminal
    assert gencli("log", "clear", "1", "--yes").code == 0
    assert [row["prompt"] for row in gencli("log", "list", "--format", "json").json] == ["two"]
    assert all(b"secret" not in path.read_bytes() for path in database.parent.iterdir())
    assert gencli("log", "clear", "--yes").code == 0
    logged("three")
    assert gencli("log", "list", "--format", "json").json[0]["number"] == 3


def test_only_its_owner_reads_the_log(logged, database):
    old = os.umask(0)
    try:
        logged("hi")
    finally:
        os.umask(old)
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    database.chmod(0o644)
    logged("hi")
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def spoilt(kind, database):
    """Make the log one that cannot be used; what is said of it."""
    shutil.rmtree(database.parent, ignore_errors=True)
    database.parent.mkdir(parents=True)
    if kind == "folder":
        database.mkdir()
        return "Is a directory"
    if kind == "link":
        database.symlink_to(database.parent / "elsewhere")
        return "symbolic link"
    if kind == "garbage":
        database.write_bytes(b"no database " * 1000)
        return "not a database"
    with sqlite3.connect(database) as connection:
        if kind == "newer":
            connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
            return "later gencli"
        connection.execute("CREATE TABLE other (a)")
        return "not a log of gencli"


def test_a_log_that_cannot_be_used_costs_no_result(logged, gencli, database):
    for kind in ["folder", "link", "garbage", "newer", "foreign"]:
        said = spoilt(kind, database)
        run = gencli("run", "-m", "fake", "--max-tokens", "2", "--seed", "1", "--log", "hi")
        assert run.code == 0, kind
        assert run.out, kind
        assert "Notice: The run is not stored in the log." in run.err, kind
        assert said in run.err, kind
        if kind not in ("folder", "link"):  # where there is no log
            result = gencli("log", "list")
            assert (result.code, result.out) == (3, ""), kind
            assert said in result.err, kind


def test_a_full_disk_costs_no_result(logged, gencli, database, monkeypatch):
    logged("hi")
    with sqlite3.connect(database) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON texts BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
        )
    run = gencli("run", "-m", "fake", "--max-tokens", "2", "--log", "hi")
    assert run.code == 0
    assert run.out
    assert "disk is full" in run.err
    assert len(gencli("log", "list", "--format", "json").json) == 1  # nothing of it is left


def test_chat_and_batch_say_that_the_log_keeps_runs(here, logged, gencli, database):
    here("home/gencli/defaults.yaml", "log: true\nmax_tokens: 2\nmodel: fake\n")
    here("rows.jsonl", json.dumps({"prompt": "hi"}) + "\n")
    assert "a batch has its journal" in gencli("batch", "rows.jsonl", "-o", "-").err
    assert "/save stores a chat" in gencli("chat", stdin=b"hi\n").err
    assert "--log" in gencli("chat", "--log").err
    assert not database.exists()


def test_what_cannot_be_shown_is_refused(logged, gencli):
    for arguments, said in [
        (("lst",), "Did you mean 'list'?"),
        (("show",), "the number of one run"),
        (("show", "9"), "no run 9"),
        (("show", "x"), "'x' is not a run"),
        (("show", "1", "--limit", "3"), "gencli log show does not take --limit"),
        (("search", "a", "b"), "one text"),
        (("list", "--limit", "0"), "--limit is 0"),
    ]:
        result = gencli("log", *arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert said in result.err, arguments


def test_a_log_that_is_no_file_is_not_called_empty(logged, gencli, database):
    for make, reason in [
        (os.mkdir, "it is a folder"),
        (os.mkfifo, "it is a pipe"),
        (lambda path: os.symlink("/nowhere/at/all", path), "No such file"),
    ]:
        database.parent.mkdir(parents=True, exist_ok=True)
        make(database)
        for words in (["list"], ["search", "x"], ["show", "1"], ["clear", "-y"]):
            done = gencli("log", *words)
            assert done.code == 3, (words, reason)
            assert f"cannot be used: {reason}" in done.err, words
        assert (
            "is not stored in the log" in gencli("run", "-m", "fake", "--log", "--max-tokens", "2", "hi").err
        )
        database.rmdir() if database.is_dir() else database.unlink()


RUNS = {
    "drawn": ("hi",),
    "several": ("hi", "yo", "-n", "2"),
    "seed": ("hi", "--seed", str(2**64 - 1)),
    "chain": ("hi", "--chain", "temperature,penalties", "--frequency-penalty", "1", "-t", "0.7"),
    "stage": ("hi", "--stage", "top_k:k=3,ties=keep", "--logit-bias", "98=-inf", "--ban", "a\\nb"),
    "stops": ("hi", "--stop", "a\\n", "--stop-regex", "b+", "--include-stop", "--max-tokens", "50"),
    "chat": ("hi", "--chat", "--system", "Be\n'brief'."),
    "choice": ("hi", "--choice", "abc", "--choice", "cab"),
    "beams": ("hi", "--beams", "3"),
    "parsed": ("hi", "--json-schema", "s.json", "--parsed", "--allow-ids", "34,91,93,97,98,44,257"),
    "preset": ("hi", "--preset", "./mine.yaml"),
    "profile": ("hi", "--compat", "llama-cpp"),
    "profile above a model": ("hi", "--compat", "vllm", "--top-k", "3"),
    "odd prompt": ("a \x01\u2028\U0001f600 'x'\n\n",),
}

DOCUMENT = '{"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 3}'


def test_records_are_the_same_but_for_times(logged, gencli):
    first, again = logged("hi", "--format", "json").json, gencli("log", "rerun", "1").json
    assert {**first, "timings": 0, "origins": 0} == {**again, "timings": 0, "origins": 0}


def test_records_and_pipes_are_the_same_again_and_a_rerun_is_not_kept(logged, gencli):
    first = logged("Read:", stdin=b"one\ntwo\n")
    assert gencli("log", "rerun", "1", stdin=b"other").out == first.out
    assert len(gencli("log", "list", "--format", "json").json) == 1


def test_a_file_that_changed_is_refused_by_name(here, logged, gencli, tmp_path):
    for content, said in [("true", "has changed"), (None, "cannot be read")]:
        here("s.json", DOCUMENT)
        logged(*RUNS["parsed"])
        here("s.json", content) if content else (tmp_path / "s.json").unlink()
        result = gencli("log", "rerun", "1")
        assert (result.code, result.out) == (3, ""), content
        assert f"{tmp_path / 's.json'} (json_schema), which {said}" in result.err, content


def test_code_of_a_run_has_to_be_given_again_and_other_code_is_refused(logged, gencli):
    logged("hi")
    result = gencli("log", "rerun", "1", "--trust-remote-code")
    assert (result.code, result.out) == (2, "")
    assert "had no --trust-remote-code" in result.err

    first = logged("hi", "--plugin", PLUGIN, "--stage", "max_run=1")
    refused = gencli("log", "rerun", "last")
    assert (refused.code, refused.out) == (2, "")
    assert f"The run had --plugin {PLUGIN}" in refused.err
    assert gencli("log", "rerun", "last", "--plugin", PLUGIN).out == first.out


def test_another_version_other_weights_and_another_text_are_said(logged, gencli, database):
    logged("hi")
    with sqlite3.connect(database) as connection:
        (details,) = connection.execute("SELECT details FROM runs").fetchone()
        found = json.loads(details)
        found["models"]["model"]["sha256"] = "0" * 64
        connection.execute("UPDATE runs SET version = '0.0.1', details = ?", (json.dumps(found),))
        connection.execute("UPDATE texts SET text = 'other'")
    result = gencli("log", "rerun", "1")
    assert result.code == 0
    for said in ("made by gencli 0.0.1", "weights of fake (model)", "The text differs from the logged one."):
        assert said in result.err
