"""`gencli log rerun` gives the same bytes, whatever presets, variables and defaults say by then."""

import json
import sqlite3

from tests.helpers.pairs import PLUGIN

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


SCHEMA = '{"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 3}'


def test_records_are_the_same_but_for_times(logged, gencli):
    first, again = logged("hi", "--format", "json").json, gencli("log", "rerun", "1").json
    assert {**first, "timings": 0, "origins": 0} == {**again, "timings": 0, "origins": 0}


def test_records_and_pipes_are_the_same_again_and_a_rerun_is_not_kept(logged, gencli):
    first = logged("Read:", stdin=b"one\ntwo\n")
    assert gencli("log", "rerun", "1", stdin=b"other").out == first.out
    assert len(gencli("log", "list", "--format", "json").json) == 1


def test_a_file_that_changed_is_refused_by_name(here, logged, gencli, tmp_path):
    for content, said in [("true", "has changed"), (None, "cannot be read")]:
        here("s.json", SCHEMA)
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
    for said in ("made by gencli 0.0.1", "weights of fake (model)", "The text is not the one"):
        assert said in result.err
