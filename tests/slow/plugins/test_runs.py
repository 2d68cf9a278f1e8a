"""Plugins in commands: presets, completion, listing without torch, the stages of the page, checks."""

import os
import subprocess
import sys

from jsonschema import Draft202012Validator

from tests.cli.conftest import ROOT
from tests.plugins.test_runs import PAGE_CODE, given, preset


def test_flag_and_variable_bring_a_plugin_to_runs_and_presets(run, gencli, given, preset):
    assert run(*given, "--stage", "only=98", "--max-tokens", 3, "hi").out == "bbb\n"
    rows = [line.split() for line in gencli("config", "diff", "neutral", preset, *given).out.splitlines()]
    assert ["only.id", "-", "98"] in rows
    assert "Allow one id." in gencli("stages", "list", *given).out
    assert "The one id that may be chosen" in gencli("stages", "show", "only", *given).out

    schema = gencli("config", "schema", *given).json
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    assert check.is_valid({"stages": {"only": {"id": 98}}, "chain": ["only", {"top_k": 3}]})
    assert not check.is_valid({"stages": {"only": {"id": -7}}})
    assert not check.is_valid({"stages": {"other": 1}})

    assert gencli("config", "lint", preset, *given).out == "1 preset is valid.\n"
    preset.write_text("stages:\n  only: {id: -7}\n")
    found = gencli("config", "lint", preset, *given)
    assert found.code == 3
    assert found.err.endswith("mine.yaml:2:14: only: id is -7, but has to be a number >= -1.\n")


def test_completion_offers_the_names_of_installed_stages_without_importing_them(install, tmp_path):
    install("only_complete", "raise RuntimeError", only="Only")
    place = os.pathsep.join([str(tmp_path / "gencli-test"), os.environ.get("PYTHONPATH", "")])
    asked = {"_GENCLI_COMPLETE": "complete_bash", "COMP_WORDS": "gencli run --stage on", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gencli"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **asked, "PYTHONPATH": place},
        check=False,
    )
    assert done.stdout.split() == ["only"]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "transformers", "only_complete"})


def test_listing_what_is_built_in_needs_no_torch():
    code = """
import sys
from gencli.cli.app import main
main(["stages", "list"]); main(["stages", "show", "top_k"])
sys.exit("torch" in sys.modules)
"""
    env = {"GENCLI_NO_PLUGINS": "1", "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "Formula" in done.stdout


def test_a_stage_stands_twice_under_a_second_name(gencli, run, plugin):
    path = plugin(PAGE_CODE[1])
    assert gencli("stages", "check", path).code == 0
    values = ("-t", 3, "--top-p", 0.95, "--stage", "second_top_p=0.4")
    order = ("--chain", "top_p,temperature,second_top_p")
    rows = run("--plugin", path, *values, *order, "--show-chain", "--format", "json").json
    assert [row["stage"] for row in rows[2:-1]] == ["top_p", "temperature", "second_top_p"]
    texts = {
        run("--plugin", path, *values[:length], *order, "--seed", 1, "--max-tokens", 40, "hi").out
        for length in (2, 4, 6)
    }
    assert len(texts) == 3


BROKEN = ROOT / "tests" / "processors" / "testing" / "test_broken_stages.py"


def test_check_names_the_promise_that_is_broken(gencli):
    for stage, check in [
        ("RunsByDefault", "defaults_never_run"),
        ("AssumesSortedRows", "rows_commute"),
        ("TakesTheLargestOfTheBatch", "batch_equals_alone"),
        ("IgnoresDrafts", "drafts_equal_steps"),
        ("CountsItsCalls", "apply_is_pure"),
        ("RevivesMasked", "masked_stays_masked"),
        ("DividesByTheSpread", "leaves_a_choice"),
        ("KeepsOnlyAboveTheMean", "leaves_a_choice"),
        ("AdmitsOnce", "admit_overwrites"),
        ("ReleaseMovesTheLast", "release_frees"),
        ("SharesAfterFork", "fork_is_independent"),
    ]:
        values = ("--stage", "shift=0.5", "--stage", "shift=2", "--stage", "shift=-1")
        done = gencli("stages", "check", f"{BROKEN}:{stage}", *values)
        assert done.code == 4, stage
        failed = [line.split()[1] for line in done.out.splitlines() if line.startswith("failed")]
        assert failed == [check], stage
        assert done.out.count("with shift=") <= 3, stage

    done = gencli("stages", "check", f"{BROKEN}:IgnoresDrafts")
    assert "with shift=0.5: prompt [], output [], drafts [60]" in done.out
