"""Plugins and presets: checked, described, compared and written with the stages of plugins."""

import os
import subprocess
import sys

from jsonschema import Draft202012Validator

from tests.cli.conftest import ROOT
from tests.plugins.test_config import given, preset


def test_lint_knows_the_stages_of_plugins(gencli, given, preset):
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
